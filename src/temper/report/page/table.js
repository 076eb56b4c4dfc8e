// The op table: sort, search, details of one op.
const OPS = DATA.ops;
const ROWS = OPS.code.length;
const TOTAL = OPS.kernel_ns.reduce((sum, ns, row) => sum + (OPS.type[row] === "device" ? (ns || 0) * OPS.count[row] : 0), 0);
const opTotal = (row) => (OPS.kernel_ns[row] || 0) * OPS.count[row];
const COLUMNS = [
  ["op", opName, "word name"],
  ["total", opTotal, "", timeText],
  ["share", (row) => (OPS.type[row] === "device" ? opTotal(row) / (TOTAL || 1) : null), "", percent],
  ["runs", (row) => OPS.count[row], ""],
  ["each", (row) => OPS.kernel_ns[row], "", timeText],
  ["band", (row) => (OPS.high_ns[row] || 0) - (OPS.low_ns[row] || 0), "", null],
  ["gap", (row) => OPS.gap_ns[row], "", timeText],
  ["bound", (row) => OPS.bound[row], "word", null],
  ["cores", (row) => OPS.cores[row], ""],
  ["fidelity", (row) => OPS.fidelity[row], "word"],
  ["shape", (row) => OPS.shape[row], "word"],
  ["where", (row) => OPS.location[row].split("/").pop(), "word"],
];
const table = { column: 1, down: true, words: "", shown: 100, order: [] };

function tableText(row) {
  return [opName(row), OPS.location[row], OPS.bound[row], OPS.fidelity[row], OPS.shape[row], OPS.formats[row], OPS.type[row]].join(" ").toLowerCase();
}

function sortTable() {
  const value = COLUMNS[table.column][1];
  const words = table.words.toLowerCase().split(/\s+/).filter(Boolean);
  table.order = [];
  for (let row = 0; row < ROWS; row++) {
    if (words.length && !words.every((word) => tableText(row).includes(word))) continue;
    table.order.push(row);
  }
  const sign = table.down ? -1 : 1;
  table.order.sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === y) return a - b;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
  });
}

function cellFor(row, column) {
  const [name, value, kind, format] = COLUMNS[column];
  const cell = make("td", null, { class: kind });
  if (name === "bound" && OPS.bound[row]) {
    const tag = make("span", OPS.bound[row], { class: "tag" });
    tag.style.background = `var(${boundVariable(OPS.bound[row])})`;
    cell.append(tag);
  } else if (name === "band") {
    if (OPS.low_ns[row] !== null && OPS.high_ns[row] !== OPS.low_ns[row]) cell.textContent = timeText(OPS.low_ns[row]) + " to " + timeText(OPS.high_ns[row]);
  } else if (name === "op") {
    // Long module paths may break after their dots.
    opName(row).split(/(?<=[.])/).forEach((part, index) => { if (index) cell.append(make("wbr")); cell.append(part); });
  } else {
    const got = value(row);
    cell.textContent = got === null || got === undefined ? "" : format ? format(got) : got;
  }
  return cell;
}

function drawTable() {
  const body = byId("ops").tBodies[0];
  body.replaceChildren();
  for (const row of table.order.slice(0, table.shown)) {
    const line = make("tr", null, { tabindex: "0" });
    COLUMNS.forEach((_, column) => line.append(cellFor(row, column)));
    line.addEventListener("click", () => openDetail(row));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") openDetail(row); });
    body.append(line);
  }
  byId("more").hidden = table.order.length <= table.shown;
  byId("found").textContent = table.order.length === ROWS ? `${ROWS} ops` : `${table.order.length} of ${ROWS} ops`;
  byId("ops").querySelectorAll("th").forEach((head, index) => {
    head.setAttribute("aria-sort", index === table.column ? (table.down ? "descending" : "ascending") : "none");
  });
}

function startTable() {
  const head = make("tr");
  COLUMNS.forEach(([name, , kind], index) => {
    const cell = make("th", null, { class: kind, scope: "col" });
    const button = make("button", name, { type: "button" });
    button.addEventListener("click", () => {
      table.down = table.column === index ? !table.down : !kind.startsWith("word");
      table.column = index;
      sortTable();
      drawTable();
    });
    cell.append(button);
    head.append(cell);
  });
  byId("ops").tHead.append(head);
  byId("search").addEventListener("input", (event) => {
    table.words = event.target.value;
    table.shown = 100;
    sortTable();
    drawTable();
  });
  byId("more").addEventListener("click", () => { table.shown += 500; drawTable(); });
  sortTable();
  drawTable();
}

function openDetail(row) {
  const body = byId("detail-body");
  body.replaceChildren(make("h2", opName(row)));
  const list = make("dl");
  const word = DATA.word;
  const rate = OPS.kernel_ns[row] ? [OPS.flops[row] / OPS.kernel_ns[row] / 1e3, OPS.dram_bytes[row] / OPS.kernel_ns[row]] : [0, 0];
  const band = OPS.low_ns[row] !== null && OPS.low_ns[row] !== OPS.high_ns[row] ? ` (${timeText(OPS.low_ns[row])} to ${timeText(OPS.high_ns[row])})` : "";
  const lines = [
    ["time", `${timeText(OPS.kernel_ns[row])}${band}, ${word}`],
    ["runs", `${OPS.count[row]}, ${timeText(opTotal(row))} in all`],
    ["gap before", timeText(OPS.gap_ns[row])],
    ["bound by", OPS.bound[row]],
    ["source", OPS.location[row]],
    ["op code", OPS.code[row]],
    ["cores", OPS.cores[row]],
    ["fidelity", OPS.fidelity[row]],
    ["shapes", OPS.shape[row]],
    ["formats", OPS.formats[row]],
    ["input 0", OPS.memory[row]],
    ["arithmetic", rate[0] ? `${rate[0].toPrecision(3)} TFLOP/s` : ""],
    ["DRAM", rate[1] ? `${rate[1].toPrecision(3)} GB/s, ${bytesText(OPS.dram_bytes[row])}` : ""],
    ["tt-metal's ideal", OPS.pm_ideal_ns[row] > 1 ? timeText(OPS.pm_ideal_ns[row]) : ""],
    ["nearest measured", OPS.neighbour[row]],
  ];
  for (const [name, value] of lines) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", name), make("dd", value));
  }
  body.append(list);
  hideTip();
  byId("detail").showModal();
}
