// What a large program takes: every box drawn, then folded, searched and picked.
window.addEventListener("load", () => {
  const timed = (act) => { const start = performance.now(); act(); document.body.offsetHeight; return performance.now() - start; };
  const seen = {errors: window.failures || []};
  seen.open = timed(() => byId("graph-open").click());
  seen.boxes = byId("graph").querySelectorAll("g.node").length;
  seen.search = timed(() => searchOps("blocks.7.layers.3"));
  seen.bright = byId("graph").querySelectorAll("g.node:not(.faint)").length;
  seen.fold = timed(() => byId("graph-fold").click());
  seen.folded = byId("graph").querySelectorAll("g.node").length;
  seen.pick = timed(() => showInGraph(1234));
  seen.shown = byId("graph").querySelectorAll("g.node").length;
  document.body.setAttribute("data-seen", JSON.stringify(seen));
});
