"use strict";
// Shared helpers. All text enters the page through textContent, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, text, attributes) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function timeText(ns) {
  if (ns === null || ns === undefined) return "";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return Number((ns / size).toPrecision(3)) + " " + unit;
  }
  return Math.round(ns) + " ns";
}

function bytesText(size) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (size >= scale) return Number((size / scale).toPrecision(3)) + " " + unit;
  }
  return Math.round(size) + " B";
}

const percent = (part) => (100 * part).toFixed(part < 0.1 ? 1 : 0) + "%";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const BOUNDS = ["compute", "sfpu", "dram", "noc", "launch", "host", "padding", "fill", "spill"];
const boundVariable = (bound) => "--" + (BOUNDS.includes(bound) ? bound : "other");
const boundColor = (bound) => css(boundVariable(bound));

// One tooltip for everything that has more to say than room to say it.
function showTip(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const y = event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}
const hideTip = () => { byId("tip").hidden = true; };
function tipOn(node, text) {
  node.addEventListener("pointermove", (event) => showTip(event, text));
  node.addEventListener("pointerleave", hideTip);
}

const opName = (row) => {
  const module = DATA.ops.module[row], code = DATA.ops.code[row].replace(/DeviceOperation$/, "");
  return module ? module + "  " + code : code;
};
