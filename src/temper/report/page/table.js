// The op table: sort, search, details of one op.
const OPS = DATA.ops;
const ROWS = OPS.code.length;
const TOTAL = OPS.kernel_ns.reduce((sum, ns, row) => sum + (OPS.type[row] === "device" ? (ns || 0) * OPS.count[row] : 0), 0);
const opTotal = (row) => (OPS.kernel_ns[row] || 0) * OPS.count[row];
const ALL_COLUMNS = [
  ["op", opName, "word name"],
  ["total", opTotal, "", timeText],
  ["share", (row) => (OPS.type[row] === "device" ? opTotal(row) / (TOTAL || 1) : null), "", percent],
  ["runs", (row) => OPS.count[row], ""],
  ["each", (row) => OPS.kernel_ns[row], "", timeText],
  ["band", (row) => (OPS.high_ns[row] || 0) - (OPS.low_ns[row] || 0), "", null],
  ["gap", (row) => OPS.gap_ns[row], "", timeText],
  ["bound", (row) => OPS.bound[row], "word", null],
  ["reached", (row) => mostReached(row)[1] || null, "", null],
  ["place", (row) => OPS.place[row], "word"],
  ["cores", (row) => OPS.cores[row], ""],
  ["fidelity", (row) => OPS.fidelity[row], "word"],
  ["shape", (row) => OPS.shape[row], "word"],
  ["where", (row) => OPS.location[row].split("/").pop(), "word"],
];
// A column that no row has anything in is left out.
const said = ([name, value], row) => (name === "band" ? (OPS.high_ns[row] || 0) !== (OPS.low_ns[row] || 0) : name === "gap" || name === "reached" ? value(row) : !["", null, undefined].includes(value(row)));
let COLUMNS = [];
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
  } else if (name === "reached") {
    const [most, share] = mostReached(row);
    if (share) cell.textContent = `${percent(share)} ${most}`;
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
    const line = make("tr", null, { tabindex: "0", "data-row": row });
    if (row === picked.row) line.className = "picked";
    COLUMNS.forEach((_, column) => line.append(cellFor(row, column)));
    line.addEventListener("click", () => openDetail(row));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") openDetail(row); });
    body.append(line);
  }
  byId("more").hidden = table.order.length <= table.shown;
  const found = table.order.reduce((sum, row) => sum + (OPS.type[row] === "device" ? opTotal(row) : 0), 0);
  const count = table.order.length === ROWS ? `${ROWS} ops` : `${table.order.length} of ${ROWS} ops`;
  byId("found").textContent = `${count}, ${timeText(found)} on the device` + (table.order.length === ROWS ? "" : ` of ${timeText(TOTAL)}`);
  byId("ops").querySelectorAll("th").forEach((head, index) => {
    head.setAttribute("aria-sort", index === table.column ? (table.down ? "descending" : "ascending") : "none");
  });
}

function searchOps(words) {
  table.words = words;
  table.shown = 100;
  sortTable();
  drawTable();
  drawLine();
  markGraph();
}

// The op's line of the table, made visible and focused.
function showInTable(row) {
  if (!table.order.includes(row)) { byId("search").value = ""; searchOps(""); }
  table.shown = Math.max(table.shown, table.order.indexOf(row) + 1);
  drawTable();
  const line = byId("ops").querySelector(`tr[data-row="${row}"]`);
  line.scrollIntoView({ block: "center" });
  line.focus({ preventScroll: true });
}

function startTable() {
  const rows = Array.from({ length: ROWS }, (_, row) => row);
  COLUMNS = ALL_COLUMNS.filter((column) => column[0] === "op" || rows.some((row) => said(column, row)));
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
  byId("search").addEventListener("input", (event) => searchOps(event.target.value));
  byId("more").addEventListener("click", () => { table.shown += 500; drawTable(); });
  sortTable();
  drawTable();
}
