// The graph of a program: ops as boxes by module, place as colour, time as size.
const graph = { program: 0, open: null, root: null, zoom: 1, shown: new Map() };
const PLACES = [["DRAM", "--dram"], ["SRAM", "--compute"], ["SRAM in shards", "--sfpu"], ["host", "--host"]];

function placeVariable(place) {
  if (place.startsWith("SRAM,")) return "--sfpu";
  return (PLACES.find(([name]) => name === place) || [0, "--other"])[1];
}

function currentProgram() { return DATA.graphs[graph.program]; }

function openGraph(index) {
  graph.program = index;
  graph.root = moduleTree(currentProgram());
  graph.open = openSlowest(graph.root, byId("graph").clientWidth < 600 ? 30 : 60);
  drawGraph();
}

function drawGraph() {
  if (!DATA.graphs.length) return;
  const program = currentProgram(), place = byId("graph"), root = graph.root;
  const slowest = Math.max(1, ...visible(root).map((part) => part.time));
  arrange(root, program, graph.open, Math.max(320, place.clientWidth - 40), slowest);
  const picture = svg("svg", { role: "group", "aria-label": `Graph of ${program.name}` });
  picture.style.height = Math.round(root.h * graph.zoom) + "px";
  const frames = svg("g"), lines = svg("g"), boxes = svg("g");
  graph.shown = new Map();
  const draw = (part, left, top) => {
    Object.assign(part, { left: left + part.x, top: top + part.y });
    if (part.open) {
      const [frame, label] = frameOf(part);
      frames.append(frame);
      boxes.append(label); // no edge crosses it out
      part.parts.forEach((inner) => draw(inner, part.left, part.top));
      return;
    }
    for (let row = part.from; row < part.to; row++) graph.shown.set(row, part);
    if (part.end) graph.shown.set(part.from, part);
    boxes.append(boxOf(part));
  };
  root.parts.forEach((part) => draw(part, 0, 0));
  const right = drawEdges(lines, program), width = Math.max(root.w, right + 8);
  picture.setAttribute("viewBox", `0 0 ${width} ${root.h}`);
  picture.style.width = Math.round(width * graph.zoom) + "px";
  picture.append(frames, lines, boxes);
  place.replaceChildren(picture);
  markGraph();
}

// What is picked stands out, what the search does not find is faint; nothing is laid out again.
function markGraph() {
  const found = matching();
  for (const part of new Set(graph.shown.values())) {
    if (part.end) continue;
    part.node.classList.toggle("picked", picked.row >= part.from && picked.row < part.to);
    part.node.classList.toggle("faint", found !== null && !rowsOf(part).some((row) => found.has(row)));
  }
  byId("graph").classList.toggle("searched", found !== null);
}

// Parts that are drawn as boxes.
function visible(node) {
  return node.parts.flatMap((part) => (part.parts.length && graph.open.has(part.key) ? visible(part) : [part]));
}

const shorten = (text, room) => (text.length > room ? text.slice(0, Math.max(1, room - 1)) + "…" : text);
const shortCode = (row) => OPS.code[row].replace(/DeviceOperation$/, "");

function press(node, act) {
  node.setAttribute("tabindex", 0);
  node.setAttribute("role", "button");
  node.addEventListener("click", act);
  node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
}

function turn(part) {
  const scroll = [byId("graph").scrollLeft, byId("graph").scrollTop];
  if (!graph.open.delete(part.key)) graph.open.add(part.key);
  hideTip();
  drawGraph();
  [byId("graph").scrollLeft, byId("graph").scrollTop] = scroll;
}

// An open module: a frame with its name, which folds it.
function frameOf(part) {
  const frame = svg("rect", { x: part.left, y: part.top, width: part.w, height: part.h, rx: 6, class: "frame" });
  const label = svg("text", { x: part.left + 8, y: part.top + 15, class: "fold" }, shorten(`▾ ${part.name}  ${timeText(part.time)}`, Math.floor((part.w - 10) / 6.2)));
  label.setAttribute("aria-label", `fold ${part.name}`);
  press(label, () => turn(part));
  return [frame, label];
}

function boxOf(part) {
  const group = part.node = svg("g", { class: "node", "data-from": part.from, "data-to": part.to });
  const { left, top, w, h } = part, rows = part.to - part.from, op = part.row >= 0;
  const color = op ? `var(${placeVariable(OPS.place[part.row])})` : "var(--shade)";
  const shape = { x: left, y: top, width: w, height: h, rx: op ? 3 : 6 };
  const box = svg("rect", { ...shape, fill: color, stroke: op ? color : "var(--soft)", "fill-opacity": op ? 0.45 : 1, "stroke-width": 1, class: "face" });
  group.append(svg("rect", { ...shape, fill: "var(--card)" }), box); // no edge shows through
  if (!op && !part.end) placeStrip(group, part);
  const room = Math.floor((w - 12) / 6.1);
  const name = part.end || (op ? opLabel(part.row, room - 7) : `▸ ${part.name} (${rows})`);
  const time = part.end ? "" : timeText(part.time);
  group.append(svg("text", { x: left + 6, y: top + 14 }, shorten(name, Math.max(4, room - time.length - 1))));
  group.append(svg("text", { x: left + w - 6, y: top + 14, "text-anchor": "end", class: "soft" }, time));
  if (h > 30 && op) group.append(svg("text", { x: left + 6, y: top + 27, class: "soft" }, shorten(OPS.shape[part.row], room)));
  const tip = part.end ? part.end + " of the call, over the link" : op ? opTip(part.row) : moduleTip(part);
  tipOn(group, tip);
  if (!part.end) {
    group.setAttribute("aria-label", tip.replace(/\n/g, ", "));
    press(group, () => (op ? openDetail(part.row) : turn(part)));
  }
  return group;
}

const rowsOf = (part) => Array.from({ length: Math.max(0, part.to - part.from) }, (_, i) => part.from + i);

// The last part of the module's name where there is room: "query Matmul".
function opLabel(row, room) {
  const last = modulePath(row).pop() || "", code = shortCode(row);
  return last && last.length + code.length < room ? `${last} ${code}` : code;
}

const opTip = (row) => [opName(row), `${timeText(opTotal(row))} (${DATA.word}), bound by ${OPS.bound[row]}`, `result in ${OPS.place[row]}`, OPS.shape[row]].filter(Boolean).join("\n");

function moduleTip(part) {
  const bound = new Map();
  for (const row of rowsOf(part)) bound.set(OPS.bound[row], (bound.get(OPS.bound[row]) || 0) + opTotal(row));
  const most = [...bound].sort((a, b) => b[1] - a[1])[0];
  return `${part.name}: ${part.to - part.from} ops, click to open\n${timeText(part.time)} (${DATA.word}), most of it bound by ${most[0]}`;
}

// A folded module shows its time by place.
function placeStrip(group, part) {
  const times = new Map();
  for (const row of rowsOf(part)) times.set(placeVariable(OPS.place[row]), (times.get(placeVariable(OPS.place[row])) || 0) + opTotal(row));
  let x = part.left;
  for (const [color, time] of [...times].sort((a, b) => b[1] - a[1])) {
    const width = (part.w * time) / (part.time || 1);
    group.append(svg("rect", { x, y: part.top + part.h - 4, width, height: 4, fill: `var(${color})` }));
    x += width;
  }
}

function drawEdges(place, program) {
  const { from, to, bytes, moves, name, place: where } = program.edges, seen = new Map();
  for (let edge = 0; edge < from.length; edge++) {
    const a = graph.shown.get(from[edge]), b = graph.shown.get(to[edge]);
    if (!a || !b || a === b) continue;
    const key = a.key + " > " + b.key, held = seen.get(key) || { a, b, bytes: 0, moves: 0, texts: [] };
    held.bytes += bytes[edge];
    held.moves = held.moves || moves[edge];
    if (held.texts.length < 4) held.texts.push(`${name[edge]}: ${bytesText(bytes[edge])} in ${where[edge]}` + (moves[edge] ? moveWords(from[edge], to[edge]) : ""));
    seen.set(key, held);
  }
  const edges = [...seen.values()], boxes = [...new Set(graph.shown.values())].filter((part) => !part.end);
  for (const edge of edges) edge.far = skips(edge, boxes);
  const lanes = sideLanes(edges.filter((edge) => edge.far), boxes);
  for (const edge of edges) {
    const { a, b } = edge, x1 = a.left + a.w / 2, y1 = a.top + a.h, x2 = b.left + b.w / 2, y2 = b.top;
    const lane = edge.far ? lanes.get(a) : null, bend = Math.max(8, (y2 - y1) / 2);
    const way = lane === null
      ? `C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`
      : `C${x1},${y1 + 16} ${lane},${y1 + 4} ${lane},${y1 + 26}L${lane},${y2 - 26}C${lane},${y2 - 4} ${x2},${y2 - 16} ${x2},${y2}`;
    const path = svg("path", { d: `M${x1},${y1}${way}`, class: edge.moves ? "edge moves" : "edge" });
    tipOn(path, edge.texts.join("\n"));
    place.append(path);
  }
  return Math.max(0, ...lanes.values()); // how far to the right they reach
}

// Whether others stand between an edge's ends.
function skips({ a, b }, boxes) {
  if (b.top - a.top - a.h <= 3 * DOWN) return false;
  const left = Math.min(a.left + a.w / 2, b.left + b.w / 2), right = Math.max(a.left + a.w / 2, b.left + b.w / 2);
  return boxes.some((box) => box !== a && box !== b && box.top < b.top && box.top > a.top + a.h - 1 && box.left < right && box.left + box.w > left);
}

// Results that skip others go down a lane beside them, one for each source: {box: x}.
function sideLanes(edges, boxes) {
  const ends = new Map(), lanes = new Map();
  for (const edge of edges) ends.set(edge.a, Math.max(ends.get(edge.a) || 0, edge.b.top));
  const taken = [];
  for (const [source, end] of [...ends].sort((a, b) => a[1] - a[0].top - (b[1] - b[0].top))) {
    let lane = source.left + source.w / 2;
    for (const box of boxes) if (box.top < end && box.top + box.h > source.top + source.h) lane = Math.max(lane, box.left + box.w);
    lane += 10;
    const clash = (other) => Math.abs(other.lane - lane) < 5 && other.top < end && other.end > source.top;
    while (taken.some(clash)) lane += 6;
    taken.push({ lane, top: source.top, end });
    lanes.set(source, lane);
  }
  return lanes;
}

function moveWords(from, to) {
  if (from === -1 || to === -2) return ", over the link";
  if (OPS.type[from] === "host" || OPS.type[to] === "host") return ", between host and device";
  return `, moved by ${shortCode(to)} to ${OPS.place[to]}`;
}

// Open what hides an op, and bring it into sight.
function showInGraph(row) {
  const index = DATA.graphs.findIndex((program) => row >= program.base && row < program.base + program.count);
  if (index < 0) return false;
  if (index !== graph.program) { byId("programs").children[index].click(); }
  let node = graph.root;
  while (node && node.row !== row) {
    graph.open.add(node.key);
    node = node.parts.find((part) => row >= part.from && row < part.to);
  }
  drawGraph();
  const box = graph.shown.get(row), place = byId("graph");
  byId("graph-section").scrollIntoView({ block: "nearest" });
  place.scrollLeft = (box.left + box.w / 2) * graph.zoom - place.clientWidth / 2;
  place.scrollTop = (box.top + box.h / 2) * graph.zoom - place.clientHeight / 2;
  return true;
}

function startGraph() {
  if (!DATA.graphs.length) { byId("graph-section").hidden = true; return; }
  DATA.graphs.forEach((program, index) => {
    const button = make("button", program.name, { type: "button", "aria-pressed": index === 0 });
    button.addEventListener("click", () => {
      byId("programs").querySelectorAll("button").forEach((other, number) => other.setAttribute("aria-pressed", number === index));
      openGraph(index);
    });
    byId("programs").append(button);
  });
  byId("programs").hidden = DATA.graphs.length < 2;
  const zoom = (factor) => { graph.zoom = Math.min(3, Math.max(0.15, factor)); drawGraph(); };
  byId("graph-in").addEventListener("click", () => zoom(graph.zoom * 1.4));
  byId("graph-out").addEventListener("click", () => zoom(graph.zoom / 1.4));
  byId("graph-fit").addEventListener("click", () => zoom(Math.min(1, (byId("graph").clientWidth - 4) / graph.root.w, (byId("graph").clientHeight - 4) / graph.root.h)));
  byId("graph-open").addEventListener("click", () => {
    const all = (node) => { graph.open.add(node.key); node.parts.filter((part) => part.parts.length).forEach(all); };
    all(graph.root);
    drawGraph();
  });
  byId("graph-fold").addEventListener("click", () => { graph.open = new Set([""]); drawGraph(); });
  const legend = byId("graph-legend");
  const entry = (color, text, line) => {
    const item = make("span"), dot = make("i", null, line ? { class: "line" } : {});
    dot.style.background = `var(${color})`;
    item.append(dot, text);
    legend.append(item);
  };
  const used = new Set(OPS.place.map(placeVariable));
  for (const [name, color] of PLACES) if (used.has(color)) entry(color, "result in " + name);
  entry("--host", "moves data: over the link, or by an op that only moves", true);
  entry("--soft", "read where it lies", true);
  openGraph(0);
}
