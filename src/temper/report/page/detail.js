// One op: its details, and the way from each view of it to the others.
const picked = { row: -1 };
const PEAKS = { compute: "the matrix engines", sfpu: "the vector engines", dram: "DRAM", noc: "the NoC" };

// Mark an op in every view that shows it.
function pick(row) {
  picked.row = row;
  drawTable();
  drawLine();
  markGraph();
  drawMemory();
}

// The words of the search, as the rows that have them; null when nothing is searched.
function matching() { return table.words.trim() ? new Set(table.order) : null; }

function shareText(row) {
  return Object.entries(PEAKS).filter(([name]) => OPS.reached[row][name] >= 0.005)
    .sort((a, b) => OPS.reached[row][b[0]] - OPS.reached[row][a[0]])
    .map(([name, words]) => `${percent(OPS.reached[row][name])} of ${words}`).join(", ");
}

// The largest share of a peak that an op reaches: [name, share].
function mostReached(row) {
  return Object.keys(PEAKS).map((name) => [name, OPS.reached[row][name] || 0]).sort((a, b) => b[1] - a[1])[0];
}

// Parts of an op's time that are no share of any peak.
const SERIAL = {
  launch: "the kernel's start and end take longer than its work",
  padding: "writing the zeros that make whole tiles takes longest",
  fill: "spreading a row or a column over tiles takes longest",
  spill: "writing partial sums and reading them again takes longest",
};

// Why an op is bound by something that it does not use most of all.
function boundWords(row) {
  const bound = OPS.bound[row], [most, share] = mostReached(row);
  if (SERIAL[bound]) return SERIAL[bound];
  if (!bound || share === 0) return "";
  const own = OPS.reached[row][bound] || 0;
  if (most !== bound && share - own > 0.005) return `its ${bound} part takes longest with the overhead that such kernels have there; shares of peaks count the work alone`;
  if (own < 0.5) return `its ${bound} part takes longest; such kernels reach ${percent(own)} of the peak`;
  return "";
}

function detailLines(row) {
  const band = OPS.low_ns[row] !== null && OPS.low_ns[row] !== OPS.high_ns[row] ? ` (${timeText(OPS.low_ns[row])} to ${timeText(OPS.high_ns[row])})` : "";
  const rate = OPS.kernel_ns[row] ? [OPS.flops[row] / OPS.kernel_ns[row] / 1e3, OPS.dram_bytes[row] / OPS.kernel_ns[row]] : [0, 0];
  return [
    ["time", `${timeText(OPS.kernel_ns[row])}${band}, ${DATA.word}`],
    ["runs", OPS.count[row] === 1 ? "" : `${OPS.count[row]}, ${timeText(opTotal(row))} in all`],
    ["gap before", timeText(OPS.gap_ns[row])],
    ["bound by", [OPS.bound[row], boundWords(row)].filter(Boolean).join(": ")],
    ["reaches", shareText(row)],
    ["source", OPS.location[row]],
    ["op code", OPS.code[row]],
    ["cores", OPS.cores[row]],
    ["fidelity", OPS.fidelity[row]],
    ["shapes", OPS.shape[row]],
    ["formats", OPS.formats[row]],
    ["input 0", OPS.memory[row]],
    ["result in", OPS.place[row]],
    ["arithmetic", rate[0] ? `${rate[0].toPrecision(3)} TFLOP/s` : ""],
    ["DRAM", rate[1] ? `${rate[1].toPrecision(3)} GB/s, ${bytesText(OPS.dram_bytes[row])}` : ""],
    ["tt-metal's ideal", OPS.pm_ideal_ns[row] > 1 ? timeText(OPS.pm_ideal_ns[row]) : ""],
    ["nearest measured", OPS.neighbour[row]],
  ];
}

function openDetail(row) {
  const body = byId("detail-body"), list = make("dl"), ways = make("p", "show in: ", { class: "ways" });
  pick(row);
  for (const [name, value] of detailLines(row)) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", name), make("dd", value));
  }
  const views = [["graph", showInGraph, DATA.graphs.length], ["timeline", showInTimeline, segmentOf(row)], ["table", showInTable, true], ["memory", showInMemory, DATA.memory.some((pool) => pool.rows.includes(row))]];
  for (const [name, show, there] of views) {
    if (!there) continue;
    const button = make("button", name, { type: "button" });
    button.addEventListener("click", () => { byId("detail").close(); show(row); });
    ways.append(button, " ");
  }
  body.replaceChildren(make("h2", opName(row)), list, ways);
  hideTip();
  byId("detail").showModal();
}
