// The page is complete without this: here are filters, copying, tabs, and what a cell of the heat map means.
const all = (selector) => [...document.querySelectorAll(selector)];

let chosen = "";
function filter(verdict) {
  chosen = chosen === verdict ? "" : verdict;
  for (const tile of all(".tile")) tile.setAttribute("aria-pressed", String(tile.dataset.verdict === chosen));
  for (const part of all("#findings > [data-verdict]")) {
    part.classList.toggle("hidden", chosen !== "" && !part.dataset.verdict.split(" ").includes(chosen));
    if (part.tagName === "DETAILS") part.open = part.dataset.verdict === chosen;
  }
  if (chosen) document.getElementById("findings").scrollIntoView({ block: "nearest" });
}
for (const tile of all(".tile")) tile.addEventListener("click", () => filter(tile.dataset.verdict));

const unfold = document.getElementById("unfold");
unfold.classList.toggle("hidden", !all("#findings article details").length);
unfold.addEventListener("click", () => {
  const open = unfold.getAttribute("aria-pressed") !== "true";
  for (const evidence of all("#findings article details")) evidence.open = open;
  unfold.setAttribute("aria-pressed", String(open));
  unfold.textContent = open ? "Hide evidence" : "Show all evidence";
});

// A page from a file or over plain http may not use the clipboard: select the text and let the browser copy it.
async function copy(code) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch { /* refused: the older way is next */ }
  }
  getSelection().selectAllChildren(code);
  return document.execCommand("copy");
}
for (const button of all(".copy")) {
  button.addEventListener("click", async () => {
    const done = await copy(button.previousElementSibling);
    button.textContent = done ? "Copied" : "Select";
    button.classList.toggle("done", done);
    setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1600);
  });
}

const tabs = all("[role=tab]");
function show(tab, focus) {
  for (const other of tabs) {
    const selected = other === tab;
    other.setAttribute("aria-selected", String(selected));
    other.tabIndex = selected ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).classList.toggle("hidden", !selected);
  }
  if (focus) tab.focus();
}
tabs.forEach((tab, place) => {
  document.getElementById(tab.getAttribute("aria-controls")).setAttribute("role", "tabpanel");
  tab.addEventListener("click", () => show(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(tabs[(place + step + tabs.length) % tabs.length], true);
  });
});
if (tabs.length) show(tabs[0]);

function named(place) {
  const [index, name, busId] = DATA.devices[place];
  return "GPU " + index + " (" + (busId || name) + ")";
}

function explain(cell) {
  const [src, dst] = [cell.parentElement.rowIndex - 1, cell.cellIndex - 1];
  const pair = DATA.pairs[src + "," + dst];
  if (src === dst || !pair) return named(src);
  const [path, measured] = pair;
  const [cls, expected, low, basis] = DATA.paths[path];
  const words = [named(src) + " to " + named(dst), cls || "path not known", "one direction " + short(measured) + " GB/s"];
  if (expected) words.push("expected " + short(expected) + ", not below " + short(low) + ": " + basis);
  return words.join(", ");
}
function tell(cell) {
  for (const other of all(".heat td.picked")) other.classList.remove("picked");
  cell.classList.add("picked");
  document.getElementById("cell").textContent = explain(cell);
}

// One tab stop for each matrix; arrows move in it.
for (const body of all(".heat tbody")) {
  const rows = [...body.rows].map((row) => [...row.querySelectorAll("td")]);
  if (rows.length) rows[0][0].tabIndex = 0;
  rows.forEach((row, i) => row.forEach((cell, j) => {
    if (i || j) cell.tabIndex = -1;
    for (const name of ["pointerenter", "click", "focus"]) cell.addEventListener(name, () => tell(cell));
    cell.addEventListener("keydown", (event) => {
      const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] || [0, 0];
      const next = rows[i + down] && rows[i + down][j + right];
      if (!(down || right)) return;
      event.preventDefault();
      if (!next) return;
      cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }));
}

// A link to a finding shows its evidence too, whatever is filtered.
function target() {
  const found = location.hash.startsWith("#finding-") && document.getElementById(location.hash.slice(1));
  if (!found) return;
  if (chosen) filter(chosen);
  for (const details of found.querySelectorAll("details")) details.open = true;
  found.scrollIntoView({ block: "nearest" });
}
addEventListener("hashchange", target);
target();
