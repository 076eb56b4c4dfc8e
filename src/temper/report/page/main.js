// Puts the page together.
function drawStack(place, parts, color) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const bar = make("div", null, { class: "stack" }), legend = make("div", null, { class: "legend" });
  for (const part of parts) {
    const piece = make("i");
    piece.style.cssText = `width:${(100 * part.value) / whole}%;background:var(${color(part.name)})`;
    tipOn(piece, `${part.name}: ${part.text || ""} ${percent(part.value / whole)}`);
    bar.append(piece);
    const item = make("span"), dot = make("i");
    dot.style.background = `var(${color(part.name)})`;
    item.append(dot, `${part.name} ${part.text ? part.text + ", " : ""}${percent(part.value / whole)}`);
    legend.append(item);
  }
  place.append(bar, legend);
}

function drawAdvice() {
  const place = byId("advice");
  if (!DATA.advice.length) {
    place.append(make("p", "No single change that was tried gains 1% or more.", { class: "hint" }));
  }
  if (DATA.advice.length) place.append(make("p", DATA.advice.every((item) => item.basis === "modelled") ? "Each change was timed again by the cost model; figures are of the calls shown." : "Times are measured; gains are modelled, or bounds from the columns of the file.", { class: "hint" }));
  for (const item of DATA.advice) {
    const block = make("div", null, { class: "advice" });
    const head = make("p");
    head.append(make("b", item.title), " ", make("span", `${percent(item.share)} less`, { class: "gain" }), `: ${item.now} → ${item.then} (${item.band}), ${item.basis}`);
    block.append(head, make("p", item.why));
    if (item.accuracy) block.append(make("p", `costs: ${item.accuracy}`, { class: "hint" }));
    const paste = make("div", null, { class: "paste" });
    const copy = make("button", "copy", { type: "button" });
    copy.addEventListener("click", () => {
      const done = () => { copy.textContent = "copied"; setTimeout(() => { copy.textContent = "copy"; }, 1500); };
      if (navigator.clipboard) navigator.clipboard.writeText(item.paste).then(done, () => {});
    });
    paste.append(make("code", item.paste), copy);
    block.append(paste);
    place.append(block);
  }
}

function drawAll() {
  drawLine();
  drawIcicle();
  drawRoofline();
  drawMemory();
  drawGraph();
}

byId("title").textContent = DATA.title;
byId("subtitle").textContent = [DATA.chip, `device times ${DATA.word}`, DATA.command && DATA.command !== DATA.title ? DATA.command : ""].filter(Boolean).join(" · ");
byId("scope").textContent = DATA.scope;
for (const [label, value, more] of DATA.headline) {
  const card = make("div");
  card.append(make("span", label), make("b", value), make("span", more));
  byId("headline").append(card);
}
const PARTS = { device: "--compute", gaps: "--gap", "host ops": "--host", transfer: "--link", waiting: "--launch" };
drawStack(byId("split"), DATA.split.map((part) => ({ name: part.name, value: part.ns, text: timeText(part.ns) })), (name) => PARTS[name] || "--other");
byId("bounds").append(make("p", "What bounds the device ops: the part of an op's time that takes longest, with the overhead that kernels of its kind have there", { class: "hint" }));
drawStack(byId("bounds"), Object.entries(DATA.bounds).map(([name, share]) => ({ name, value: share })), boundVariable);
drawAdvice();
startTable();
startTimeline();
drawIcicle();
drawRoofline();
drawMemory();
startGraph();
if (DATA.notes.length) {
  byId("notes-section").hidden = false;
  DATA.notes.forEach((note) => byId("notes").append(make("li", note)));
}
byId("footer").textContent = `temper ${DATA.version}. Times on the device are ${DATA.word}; wall time is measured.`;
byId("detail").addEventListener("click", (event) => { if (event.target === byId("detail")) byId("detail").close(); });
byId("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  drawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let resizing = 0;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 100); });
document.documentElement.dataset.ready = "yes";
