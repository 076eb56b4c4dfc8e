// The timeline: lanes on a canvas, zoom by buttons, wheel with Ctrl, pinch or double click.
const LANE = 30, AXIS = 22;
const line = { index: 0, from: 0, to: 1, end: 1, drag: null };

function currentLine() { return DATA.timelines[line.index]; }

function segmentText(lane, i) {
  const name = lane.o[i] >= 0 ? opName(lane.o[i]) : lane.t[i];
  return `${name}\n${timeText(lane.d[i])} at ${timeText(lane.s[i])}` + (lane.o[i] >= 0 && OPS.location[lane.o[i]] ? `\n${OPS.location[lane.o[i]]}` : "");
}

function fitLine() {
  let end = 1;
  for (const lane of currentLine().lanes) {
    for (let i = 0; i < lane.s.length; i++) end = Math.max(end, lane.s[i] + lane.d[i]);
  }
  for (const [at] of currentLine().marks) end = Math.max(end, at);
  Object.assign(line, { from: 0, to: end, end });
}

function segmentColor(lane, i) {
  if (lane.b) return boundColor(lane.b[i]);
  if (lane.o[i] >= 0) return boundColor(OPS.type[lane.o[i]] === "host" ? "host" : OPS.bound[lane.o[i]]);
  return css("--link");
}

// Index of the first segment that ends after a time; starts are in order within a lane.
function firstAfter(lane, time) {
  let low = 0, high = lane.s.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.s[middle] + lane.d[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function drawLine() {
  const canvas = byId("timeline"), now = currentLine();
  const width = canvas.clientWidth, height = AXIS + now.lanes.length * LANE + 4;
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "11px system-ui, sans-serif";
  const found = matching();
  const span = line.to - line.from || 1, x = (time) => ((time - line.from) / span) * width;
  drawAxis(pen, width, height, span, x);
  now.lanes.forEach((lane, number) => {
    const top = AXIS + number * LANE;
    const thin = new Map(); // two pixels of screen -> how much of them is busy, and with what
    for (let i = firstAfter(lane, line.from); i < lane.s.length && lane.s[i] < line.to; i++) {
      const left = x(lane.s[i]), right = x(lane.s[i] + lane.d[i]);
      if (right - left < 2) {
        const bin = Math.floor(left / 2), held = thin.get(bin) || { busy: 0, most: -1, i, found: false };
        if (found && found.has(lane.o[i]) && !held.found) Object.assign(held, { found: true, most: -1 });
        held.busy += right - left;
        if (right - left > held.most && (!held.found || found.has(lane.o[i]))) Object.assign(held, { most: right - left, i });
        thin.set(bin, held);
        continue;
      }
      pen.globalAlpha = found && !found.has(lane.o[i]) ? 0.15 : 1;
      pen.fillStyle = segmentColor(lane, i);
      pen.fillRect(left, top + 2, right - left - (right - left > 3 ? 1 : 0), LANE - 6);
      if (right - left > 46) {
        pen.save();
        pen.beginPath();
        pen.rect(Math.max(0, left), top, right - Math.max(0, left) - 4, LANE);
        pen.clip();
        pen.fillStyle = "#fff";
        pen.fillText(segmentText(lane, i).split("\n")[0], Math.max(0, left) + 5, top + 18);
        pen.restore();
      }
    }
    // What is thinner than the screen can show stands as high as it is busy.
    for (const [bin, held] of thin) {
      const high = Math.max(4, Math.min(1, held.busy / 2) * (LANE - 6));
      pen.globalAlpha = found && !held.found ? 0.15 : 1;
      pen.fillStyle = segmentColor(lane, held.i);
      pen.fillRect(bin * 2, top + 2 + (LANE - 6) - high, 2, high);
    }
    pen.globalAlpha = 1;
    drawPicked(pen, lane, top, x, width);
    pen.fillStyle = css("--soft");
    if (!lane.s.length) pen.fillText(lane.name + ": nothing", 6, top + 18);
  });
  pen.strokeStyle = css("--host");
  pen.fillStyle = css("--host");
  for (const [at, name] of now.marks) {
    if (at < line.from || at > line.to) continue;
    pen.fillRect(x(at), AXIS - 4, 1, height);
    pen.fillText(name, x(at) + 3, AXIS + 8);
  }
  byId("timeline-hint").textContent = [
    now.lanes.map((lane) => lane.name).join(" / "), now.note,
    found ? "what the search does not find is faint" : "", "bars stand as high as the device is busy · drag or ← → to move, + − or Ctrl + wheel to zoom, click an op for details",
  ].filter(Boolean).join(" · ");
}

// A frame round the op that was picked in any view.
function drawPicked(pen, lane, top, x, width) {
  if (picked.row < 0) return;
  pen.strokeStyle = css("--ink");
  pen.lineWidth = 2;
  for (let i = firstAfter(lane, line.from); i < lane.s.length && lane.s[i] < line.to; i++) {
    if (lane.o[i] !== picked.row) continue;
    const left = Math.max(1, x(lane.s[i])), right = Math.min(width - 1, x(lane.s[i] + lane.d[i]));
    pen.strokeRect(left, top + 1, Math.max(3, right - left), LANE - 4);
  }
  pen.lineWidth = 1;
}

// The first segment of an op on the device's clock: [lane, index].
function segmentOf(row) {
  for (const lane of DATA.timelines[0].lanes) {
    const index = lane.o.indexOf(row);
    if (index >= 0) return [lane, index];
  }
  return null;
}

function showInTimeline(row) {
  const [lane, i] = segmentOf(row);
  if (line.index !== 0) byId("clocks").children[0].click();
  const span = Math.min(line.end, Math.max(20, 8 * lane.d[i]));
  moveLine(lane.s[i] + lane.d[i] / 2 - span / 2, span);
  byId("timeline").scrollIntoView({ block: "center" });
}

// Ticks tell their neighbours apart: as many digits as the step between them needs.
function tickText(at, step) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, scale]) => line.to >= scale) || ["ns", 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return (at / size).toFixed(digits) + " " + unit;
}

function drawAxis(pen, width, height, span, x) {
  const rough = span / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  pen.strokeStyle = css("--line");
  pen.fillStyle = css("--soft");
  for (let at = Math.ceil(line.from / step) * step; at <= line.to; at += step) {
    pen.beginPath();
    pen.moveTo(x(at), AXIS - 5);
    pen.lineTo(x(at), height);
    pen.stroke();
    pen.fillText(tickText(at, step), x(at) + 3, 13);
  }
}

function zoomLine(factor, center) {
  const at = center === undefined ? (line.from + line.to) / 2 : center;
  const span = Math.min(line.end, Math.max(20, (line.to - line.from) * factor));
  const part = (at - line.from) / (line.to - line.from || 1);
  moveLine(at - part * span, span);
}

function moveLine(from, span) {
  line.from = Math.max(0, Math.min(from, line.end - span));
  line.to = line.from + span;
  drawLine();
}

function segmentAt(event) {
  const box = byId("timeline").getBoundingClientRect();
  const lane = currentLine().lanes[Math.floor((event.clientY - box.top - AXIS) / LANE)];
  const time = line.from + ((event.clientX - box.left) / box.width) * (line.to - line.from);
  if (!lane) return { time };
  const slack = ((line.to - line.from) / box.width) * 2;
  const index = firstAfter(lane, time - slack);
  return index < lane.s.length && lane.s[index] <= time + slack ? { time, lane, index } : { time };
}

function startTimeline() {
  const canvas = byId("timeline");
  DATA.timelines.forEach((item, index) => {
    const button = make("button", item.name, { type: "button", "aria-pressed": index === 0 });
    button.addEventListener("click", () => {
      line.index = index;
      byId("clocks").querySelectorAll("button").forEach((other, number) => other.setAttribute("aria-pressed", number === index));
      fitLine();
      drawLine();
    });
    byId("clocks").append(button);
  });
  byId("zoom-in").addEventListener("click", () => zoomLine(0.5));
  byId("zoom-out").addEventListener("click", () => zoomLine(2));
  byId("zoom-fit").addEventListener("click", () => { fitLine(); drawLine(); });
  canvas.addEventListener("dblclick", (event) => zoomLine(0.4, segmentAt(event).time));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    zoomLine(event.deltaY > 0 ? 1.25 : 0.8, segmentAt(event).time);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const span = line.to - line.from;
    const act = { "+": () => zoomLine(0.5), "-": () => zoomLine(2), ArrowLeft: () => moveLine(line.from - span / 5, span), ArrowRight: () => moveLine(line.from + span / 5, span) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  canvas.addEventListener("pointerdown", (event) => { line.drag = { x: event.clientX, from: line.from, moved: false }; });
  window.addEventListener("pointerup", () => { setTimeout(() => { line.drag = null; }); });
  canvas.addEventListener("pointermove", (event) => {
    if (line.drag && event.buttons) {
      const span = line.to - line.from, delta = event.clientX - line.drag.x;
      line.drag.moved = line.drag.moved || Math.abs(delta) > 4;
      if (line.drag.moved) moveLine(line.drag.from - (delta / canvas.clientWidth) * span, span);
      return hideTip();
    }
    const hit = segmentAt(event);
    if (hit.lane) showTip(event, segmentText(hit.lane, hit.index)); else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const hit = segmentAt(event);
    if (!(line.drag && line.drag.moved) && hit.lane && hit.lane.o[hit.index] >= 0) openDetail(hit.lane.o[hit.index]);
  });
  fitLine();
  drawLine();
}
