// The graph's layout: modules as nested boxes, results flow from top to bottom.
// Ops come in the order that they run, so a module is one or several stretches of rows, and
// every edge points forward: layers are longest paths, without cycles to break.
const PAD = 9, HEAD = 19, ACROSS = 12, DOWN = 20;

// The parts of a module's path, as the op table has them.
const modulePath = (row) => OPS.module[row].replace(/\//g, ".").split(".").filter(Boolean).slice(0, 12);

// A stretch of rows that share a module, with what is inside: {key, name, from, to, time, parts}.
function moduleTree(program) {
  const paths = [];
  for (let row = program.base; row < program.base + program.count; row++) paths.push(modulePath(row));
  const path = (row) => paths[row - program.base];
  const build = (from, to, depth, key, name) => {
    const node = { key, name, from, to, time: 0, parts: [], row: -1 };
    for (let row = from; row < to;) {
      const part = path(row)[depth];
      if (part === undefined) {
        node.parts.push({ key: "op " + row, from: row, to: row + 1, time: opTotal(row), parts: [], row });
        row += 1;
        continue;
      }
      let end = row + 1;
      while (end < to && path(end)[depth] === part) end += 1;
      node.parts.push(build(row, end, depth + 1, `${key}.${part}@${row}`, part));
      row = end;
    }
    for (const part of node.parts) node.time += part.time;
    if (depth && node.parts.length === 1) {
      // A module with one thing in it is that thing.
      const [only] = node.parts;
      if (only.row < 0) only.name = node.name + "." + only.name;
      return only;
    }
    return node;
  };
  const root = build(program.base, program.base + program.count, 0, "", program.name);
  root.parts.unshift({ key: "inputs", from: -1, to: -1, time: 0, parts: [], row: -1, end: "inputs" });
  root.parts.push({ key: "outputs", from: -2, to: -2, time: 0, parts: [], row: -1, end: "outputs" });
  return root;
}

// Which modules stand open at first: the slowest, as long as the picture stays readable.
function openSlowest(root, most) {
  const open = new Set([root.key]);
  const closed = root.parts.filter((part) => part.parts.length);
  let boxes = root.parts.length;
  while (closed.length) {
    closed.sort((a, b) => b.time - a.time);
    const next = closed.find((part) => boxes + part.parts.length <= most);
    if (!next) break;
    closed.splice(closed.indexOf(next), 1);
    open.add(next.key);
    boxes += next.parts.length;
    closed.push(...next.parts.filter((part) => part.parts.length));
  }
  return open;
}

// Place what is inside a module: sets x, y, w, h of every visible part, relative to the module.
function arrange(node, program, open, room, slowest) {
  const parts = node.parts, index = new Int32Array(program.count);
  parts.forEach((part, i) => { for (let row = part.from; row < part.to && row >= 0; row++) index[row - program.base] = i; });
  for (const part of parts) {
    part.open = part.parts.length > 0 && open.has(part.key);
    if (part.open) arrange(part, program, open, room - 2 * PAD, slowest);
    else Object.assign(part, boxSize(part, slowest));
  }
  const inside = (row) => row >= node.from && row < node.to;
  const at = (row) => (row === -1 ? 0 : row === -2 ? parts.length - 1 : index[row - program.base]);
  const above = parts.map(() => []), layer = new Int32Array(parts.length);
  const { from, to } = program.edges;
  for (let edge = 0; edge < from.length; edge++) {
    const known = (row) => inside(row) || (node.key === "" && row < 0);
    if (!known(from[edge]) || !known(to[edge])) continue;
    const a = at(from[edge]), b = at(to[edge]);
    if (a < b) above[b].push(a);
  }
  // Whoever runs later stands in order: every edge goes from a smaller index to a larger one.
  parts.forEach((_, i) => { for (const a of above[i]) layer[i] = Math.max(layer[i], layer[a] + 1); });
  if (node.key === "") layer[parts.length - 1] = Math.max(...layer);
  placeLayers(node, parts, layer, above, room);
}

function boxSize(part, slowest) {
  if (part.end) return { w: 76, h: 20 };
  const size = Math.sqrt(part.time / (slowest || 1));
  return { w: Math.round(104 + 130 * Math.min(1, size)), h: Math.round(21 + 30 * Math.min(1, size)) };
}

function placeLayers(node, parts, layer, above, room) {
  const layers = [];
  parts.forEach((part, i) => { (layers[layer[i]] = layers[layer[i]] || []).push(i); });
  const lines = [], middle = new Float64Array(parts.length);
  for (const members of layers) {
    if (!members) continue;
    // Below the mean of what feeds it; ties stay in the order that they run.
    const wish = (i) => (above[i].length ? above[i].reduce((sum, a) => sum + middle[a], 0) / above[i].length : 0);
    members.sort((a, b) => wish(a) - wish(b) || a - b);
    let line = null;
    for (const i of members) {
      if (!line || line.w + ACROSS + parts[i].w > room) {
        line = { members: [], w: -ACROSS, h: 0 };
        lines.push(line);
      }
      line.members.push(i);
      line.w += ACROSS + parts[i].w;
      line.h = Math.max(line.h, parts[i].h);
    }
    for (const l of lines.slice(-members.length)) {
      let x = -l.w / 2;
      for (const i of l.members) { middle[i] = x + parts[i].w / 2; x += parts[i].w + ACROSS; }
    }
  }
  const head = node.key === "" ? 0 : HEAD;
  const width = Math.max(node.key === "" ? 0 : 96, ...lines.map((line) => line.w));
  let y = PAD + head;
  for (const line of lines) {
    let x = PAD + (width - line.w) / 2;
    for (const i of line.members) {
      Object.assign(parts[i], { x, y: y + (line.h - parts[i].h) / 2 });
      x += parts[i].w + ACROSS;
    }
    y += line.h + DOWN;
  }
  Object.assign(node, { w: width + 2 * PAD, h: y - DOWN + PAD });
}
