"use strict";
// What every page of ours shares. Text only ever goes through textContent: a host's string is never markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const VERDICTS = ["fail", "warn", "unknown", "pass"];
const SHAPE = { pass: "\u00b7", warn: "!", fail: "\u00d7", unknown: "?", skip: "-" };

// make("td.number", {title: "..."}, "text", child, ...)
function make(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  return fill(document.createElement(tag), classes, attributes, children);
}

function draw(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  return fill(document.createElementNS(SVG, tag), classes, attributes, children);
}

function fill(element, classes, attributes, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function badge(verdict) {
  return make("span.badge." + verdict, { }, make("span", { "aria-hidden": "true" }, SHAPE[verdict]), verdict.toUpperCase());
}

function card(id, title, note) {
  const heading = make("h2", { id: id + "-title" }, title);
  const header = make("header", {}, heading, note ? make("span.soft", {}, note) : null);
  return make("section.card", { id, "aria-labelledby": id + "-title" }, header);
}

function short(value) {
  if (value === null || value === undefined) return "\u2013";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return Number(value.toPrecision(4)).toString();
}

function plural(count, word) {
  return count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");
}

// Evidence of what is wrong is open on paper.
(function paper() {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("article details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();

// A box that scrolls can be reached by keyboard.
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  }
});

(function theme() {
  const button = document.getElementById("theme");
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  function show(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", "Switch to " + (dark ? "light" : "dark") + " colours");
  }
  show(preferred.matches);
  preferred.addEventListener("change", (event) => show(event.matches));
  button.addEventListener("click", () => show(document.documentElement.dataset.theme !== "dark"));
})();
