// Icicle of modules, roofline, memory: SVG, redrawn when the width or the theme changes.
let treeFocus = [];

function drawIcicle() {
  const place = byId("icicle"), width = Math.max(280, place.clientWidth), row = 24;
  let node = DATA.tree;
  for (const name of treeFocus) node = node.c.find((child) => child.n === name) || node;
  const depth = (item) => 1 + Math.max(0, ...item.c.map(depth));
  const rows = Math.min(8, depth(node));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${rows * row}`, role: "img", "aria-label": "Time by module" });
  const shades = ["--compute", "--sfpu", "--dram", "--noc", "--link", "--launch"];
  const draw = (item, left, span, level, path, shade) => {
    if (level >= rows || span < 1) return;
    const box = svg("rect", { x: left, y: level * row, width: span, height: row - 1, class: "box", rx: 2, fill: `var(${shades[shade % shades.length]})`, "fill-opacity": level ? 0.55 + 0.4 / (level + 1) : 0.35, tabindex: 0, role: "button" });
    const whole = DATA.tree.v || 1;
    const tip = `${path.join(".") || item.n}\n${timeText(item.v)}, ${percent(item.v / whole)} (${DATA.word})`;
    tipOn(box, tip);
    box.setAttribute("aria-label", tip);
    const go = () => {
      treeFocus = item.c.length ? path : treeFocus;
      drawIcicle();
      byId("icicle").querySelector("rect").focus(); // the one that had it is gone
      hideTip();
    };
    box.addEventListener("click", go);
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
    picture.append(box);
    if (span > 40) {
      const room = Math.floor((span - 8) / 6.2);
      const label = item.n.length > room ? item.n.slice(0, Math.max(1, room - 1)) + "…" : item.n;
      picture.append(svg("text", { x: left + 5, y: level * row + 16, "pointer-events": "none" }, label));
    }
    let at = left;
    item.c.forEach((child, index) => {
      const part = item.v ? (child.v / item.v) * span : 0;
      draw(child, at, part, level + 1, [...path, child.n], level ? shade : index);
      at += part;
    });
  };
  draw(node, 0, width, 0, treeFocus, 0);
  place.replaceChildren(picture);
  const path = byId("path");
  path.replaceChildren();
  ["model", ...treeFocus].forEach((name, index) => {
    const button = make("button", (index ? "› " : "") + name, { type: "button" });
    button.addEventListener("click", () => { treeFocus = treeFocus.slice(0, index); drawIcicle(); });
    path.append(button);
  });
}

function drawRoofline() {
  const place = byId("roofline"), width = Math.max(280, place.clientWidth), height = 300, pad = 44;
  const points = [];
  for (let row = 0; row < ROWS && points.length < DATA.roof.limit; row++) {
    if (OPS.flops[row] > 0 && OPS.dram_bytes[row] > 0 && OPS.kernel_ns[row] > 0) {
      points.push({ row, x: OPS.flops[row] / OPS.dram_bytes[row], y: OPS.flops[row] / OPS.kernel_ns[row] / 1e3 });
    }
  }
  const peaks = Object.entries(DATA.roof.peaks), top = Math.max(...peaks.map(([, value]) => value));
  const xs = [...points.map((p) => p.x), 1, 1000], ys = [...points.map((p) => p.y), 0.1, top];
  const range = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  const [x0, x1] = range(xs), [y0, y1] = range(ys);
  const X = (v) => pad + ((Math.log10(v) - x0) / (x1 - x0)) * (width - pad - 66);
  const Y = (v) => height - 30 - ((Math.log10(v) - y0) / (y1 - y0)) * (height - 44);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Roofline" });
  const tick = (power) => String(Number((10 ** power).toPrecision(1)));
  for (let power = x0; power <= x1; power++) {
    picture.append(svg("line", { x1: X(10 ** power), x2: X(10 ** power), y1: Y(10 ** y1), y2: Y(10 ** y0), class: "axis" }));
    picture.append(svg("text", { x: X(10 ** power), y: height - 16, class: "soft", "text-anchor": "middle" }, tick(power)));
  }
  for (let power = y0; power <= y1; power++) {
    picture.append(svg("line", { x1: X(10 ** x0), x2: X(10 ** x1), y1: Y(10 ** power), y2: Y(10 ** power), class: "axis" }));
    picture.append(svg("text", { x: pad - 5, y: Y(10 ** power) + 4, class: "soft", "text-anchor": "end" }, tick(power)));
  }
  let below = Infinity;
  peaks.sort((a, b) => a[1] - b[1]).forEach(([name, peak]) => {
    const knee = Math.max(10 ** x0, (peak * 1e3) / DATA.roof.dram);
    const start = Math.max(10 ** x0, (10 ** y0 * 1e3) / DATA.roof.dram);
    picture.append(svg("polyline", { points: `${X(start)},${Y((start * DATA.roof.dram) / 1e3)} ${X(knee)},${Y(peak)} ${X(10 ** x1)},${Y(peak)}`, fill: "none", stroke: "var(--soft)", "stroke-width": 1.3 }));
    // Peaks lie close together: each label stands above the one before.
    below = Math.min(Y(peak) + 4, below - 13);
    picture.append(svg("text", { x: X(10 ** x1) + 5, y: below, class: "soft" }, `${name} ${Math.round(peak)}`));
  });
  const largest = Math.max(1, ...points.map((p) => opTotal(p.row)));
  for (const point of points) {
    const dot = svg("circle", { cx: X(point.x), cy: Y(point.y), r: 3 + 7 * Math.sqrt(opTotal(point.row) / largest), fill: `var(${boundVariable(OPS.bound[point.row])})`, "fill-opacity": 0.7, style: "cursor:pointer" });
    tipOn(dot, `${opName(point.row)}\n${point.y.toPrecision(3)} TFLOP/s, ${point.x.toPrecision(3)} FLOP a byte\n${timeText(opTotal(point.row))} in all`);
    dot.addEventListener("click", () => openDetail(point.row));
    picture.append(dot);
  }
  picture.append(svg("text", { x: X(10 ** x1), y: height - 3, class: "soft", "text-anchor": "end" }, "FLOP a byte of DRAM"));
  picture.append(svg("text", { x: pad + 4, y: 12, class: "soft" }, "TFLOP/s"));
  place.replaceChildren(picture);
  const rest = ROWS - points.length;
  place.append(make("p", `${points.length} ops with arithmetic and DRAM traffic` + (rest ? `; ${rest} others have no point` : "") + `. DRAM roof ${DATA.roof.dram} GB/s. Size is time, colour is the bound.`, { class: "hint" }));
}

function drawMemory() {
  const place = byId("memory");
  place.replaceChildren();
  if (!DATA.memory.length) {
    byId("memory-section").querySelector("h2").textContent = "Memory";
    place.append(make("p", "A card's CSV does not say who holds memory; a run folder of temper does.", { class: "hint" }));
    return;
  }
  for (const pool of DATA.memory) place.append(memoryPicture(pool, Math.max(280, place.clientWidth)));
}

function memoryPicture(pool, width) {
  const height = 130, count = pool.used.length, peak = Math.max(1, ...pool.used);
  const block = make("div");
  block.append(make("p", `${pool.pool}: at most ${bytesText(peak)} of ${bytesText(pool.capacity)} (${percent(peak / pool.capacity)}), ${pool.program}`, { class: "hint" }));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${pool.pool} over one call` });
  const X = (op) => (op / count) * width, unit = (height - 16) / peak;
  // Long-lived tensors lie at the bottom; each is drawn on what is below it at every op.
  const base = new Float64Array(count);
  const shades = ["--compute", "--sfpu", "--dram", "--noc", "--link"];
  const step = Math.max(1, Math.ceil(count / width));
  const held = pool.holders.slice().sort((a, b) => (b[4] - b[3]) - (a[4] - a[3]) || b[2] - a[2]);
  held.forEach(([name, module, size, first, last], index) => {
    const edge = size * unit > 3 ? 0.5 : 0;
    let path = "", back = "";
    for (let op = first; op <= last; op = op === last ? last + 1 : Math.min(last, op + step)) {
      const low = height - base[op] * unit, high = height - (base[op] + size) * unit;
      path += `${path ? "L" : "M"}${X(op)},${high}L${X(op + 1)},${high}`;
      back = `L${X(op + 1)},${low}L${X(op)},${low}` + back;
    }
    for (let op = first; op <= last; op++) base[op] += size;
    const shape = svg("path", { d: path + back + "Z", fill: `var(${shades[index % shades.length]})`, "fill-opacity": 0.65, stroke: "var(--card)", "stroke-width": edge });
    tipOn(shape, `${module || name}\n${bytesText(size)} from ${pool.ops[first]} to ${pool.ops[last]}\nclick for the op that runs here`);
    picture.append(shape);
  });
  let outline = "";
  for (let op = 0; op < count; op += step) outline += `${op ? "L" : "M"}${X(op)},${height - pool.used[op] * unit}L${X(Math.min(count, op + step))},${height - pool.used[op] * unit}`;
  picture.append(svg("path", { d: outline, fill: "none", stroke: "var(--ink)", "stroke-width": 1, "pointer-events": "none" }));
  // A click anywhere is a click on the op that runs there.
  picture.style.cursor = "pointer";
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const op = Math.floor(((event.clientX - box.left) / box.width) * count);
    openDetail(pool.rows[Math.max(0, Math.min(count - 1, op))]);
  });
  const at = pool.rows.indexOf(picked.row);
  if (picked.row >= 0 && at >= 0) picture.append(svg("rect", { x: X(at), y: 0, width: Math.max(2, X(1)), height, fill: "var(--ink)", "fill-opacity": 0.35, class: "picked", "pointer-events": "none" }));
  block.append(picture);
  return block;
}

function showInMemory() { byId("memory-section").scrollIntoView({ block: "center" }); }
