// State, filters, and the table of hosts.
const STATE = { words: "", verdict: "", group: "", place: "", sort: "verdict", down: false, page: 0 };
const PAGE = 50;
const PAGE_OF_PAPER = 5000;
let rows_at_once = PAGE;
const APP = document.getElementById("app");
const COLUMNS = [
  ["verdict", "verdict", (h) => VERDICTS.indexOf(h.verdict)], ["host", "host", (h) => h.name], ["GPUs", "gpus", (h) => h.gpus || ""],
  ["driver", "driver", (h) => h.driver || ""], ["system", "system", (h) => h.system || ""], ["problems", "findings", (h) => -h.findings.length],
  ["outlier", "odd", (h) => (h.odd.length ? Math.min(...h.odd.map((o) => -Math.abs(o.percent))) : 0)],
];
const WIDE = new Set(["gpus", "system", "driver"]);

function matches(host) {
  if (STATE.verdict === "odd" ? !host.odd.length : STATE.verdict && host.verdict !== STATE.verdict) return false;
  if (STATE.group && host.group !== STATE.group) return false;
  return STATE.words.toLowerCase().split(/\s+/).every((word) => !word || host.words.includes(word) || host.odd.some((o) => o.metric.toLowerCase().includes(word)));
}

function filterOn(words, verdict = "odd") {
  STATE.words = words;
  document.getElementById("search").value = words;
  STATE.verdict = verdict;
  STATE.page = 0;
  show();
  document.getElementById("hosts").scrollIntoView();
}

function tiles() {
  const count = (verdict) => HOSTS.filter((host) => host.verdict === verdict).length;
  const odd = HOSTS.filter((host) => host.odd.length).length;
  const all = [["", "", "all hosts", HOSTS.length], ...["fail", "warn", "unknown", "pass"].map((v) => [v, SHAPE[v], v, count(v)]), ["odd", "\u25c7", "outliers", odd]];
  return make("div.tiles", { role: "group", "aria-label": "Filter by verdict" }, all.map(([key, shape, label, number]) => make("button.tile." + (key || "all"), {
    type: "button", "data-verdict": key, "aria-pressed": String(STATE.verdict === key),
    click: () => { STATE.verdict = STATE.verdict === key ? "" : key; STATE.page = 0; show(); },
  }, make("b", {}, number.toLocaleString("en")), make("span", {}, shape ? make("i", { "aria-hidden": "true" }, shape) : null, label))));
}

function choice(id, label, values, none, change) {
  const select = make("select", { id, "aria-label": label, change: () => change(select.value) }, make("option", { value: "" }, none), values.map(([value, words]) => make("option", { value }, words)));
  return select;
}

function controls() {
  const search = make("input", { id: "search", type: "search", placeholder: "Search host, GPU, driver, finding, rack=r012 \u2026", "aria-label": "Search hosts", autocomplete: "off", spellcheck: "false" });
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { STATE.words = search.value; STATE.page = 0; show(); }, 80); });
  const groups = [...new Set(HOSTS.map((host) => host.group).filter(Boolean))].sort();
  const group = groups.length > 1 ? choice("group", "Group", groups.map((g) => [g, g]), "All groups", (value) => { STATE.group = value; STATE.page = 0; show(); }) : null;
  const found = places();
  STATE.place = found.includes("rack") ? "rack" : "";
  const place = found.length ? choice("place", "Arrange the grid by", found.map((name) => [name, "by " + name]), "by name", (value) => { STATE.place = value; show(); }) : null;
  if (place) place.value = STATE.place;
  const clear = make("button.quiet", { type: "button", id: "clear", click: () => { Object.assign(STATE, { words: "", verdict: "", group: "", page: 0 }); search.value = ""; if (group) group.value = ""; show(); } }, "Clear");
  return make("div.controls", { role: "search" }, search, group, place, clear);
}

function legend() {
  const words = { pass: "pass", warn: "warn", fail: "fail", unknown: "unknown: could not look" };
  const spans = Object.entries(words).map(([v, label]) => make("span", {}, make("span.cell." + v, { "aria-hidden": "true" }, SHAPE[v]), label));
  return make("div.legend", {}, spans, make("span", {}, make("span.cell.pass.odd", { "aria-hidden": "true" }, SHAPE.pass), "ring: outlier"));
}

function table(hosts) {
  const key = COLUMNS.find(([, id]) => id === STATE.sort)[2];
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const sorted = [...hosts].sort((a, b) => compare(key(a), key(b)) * (STATE.down ? -1 : 1) || a.name.localeCompare(b.name, "en", { numeric: true }));
  const pages = Math.max(1, Math.ceil(sorted.length / rows_at_once));
  STATE.page = Math.min(STATE.page, pages - 1);
  const head = COLUMNS.map(([label, id]) => make(WIDE.has(id) ? "th.wide" : "th", { scope: "col", "aria-sort": STATE.sort === id ? (STATE.down ? "descending" : "ascending") : "none" },
    make("button", { type: "button", "data-sort": id, click: () => { STATE.down = STATE.sort === id && !STATE.down; STATE.sort = id; STATE.page = 0; show(); document.querySelector("[data-sort=" + id + "]").focus(); } }, label)));
  const rows = sorted.slice(STATE.page * rows_at_once, (STATE.page + 1) * rows_at_once).map((host) => {
    const worst = host.odd.length ? host.odd.reduce((a, b) => (Math.abs(b.percent) > Math.abs(a.percent) ? b : a)) : null;
    const causes = [...new Set(host.findings.map((f) => f.cause || (f.check === "fleet" ? "outlier" : f.check)))];
    const checks = causes.flatMap((cause, i) => [i ? ", " : null, make("span.keep", {}, cause)]);
    return make("tr.row", {}, make("td", {}, badge(host.verdict)), make("td", {}, hostLink(host.name), host.profile ? make("div.soft", {}, "SIMULATED") : null), make("td.wide", {}, host.gpus || "\u2013"),
      make("td.wide", {}, host.driver || "\u2013"), make("td.wide", {}, host.system || "\u2013"), make("td", {}, checks.length ? checks : "\u2013"),
      make("td", {}, worst ? make("span.off", {}, away(worst)) : "\u2013", worst ? make("div.soft", {}, title(worst.metric)) : null));
  });
  const empty = make("tr", {}, make("td", { colspan: COLUMNS.length }, "No host fits this filter."));
  const move = (step) => () => { STATE.page += step; show(); document.getElementById("hosts").scrollIntoView(); };
  const pager = make("div.pager", {}, make("button.quiet", { type: "button", id: "before", disabled: STATE.page === 0, click: move(-1) }, "Previous"),
    make("span", { id: "page" }, "Page " + (STATE.page + 1) + " of " + pages), make("button.quiet", { type: "button", id: "next", disabled: STATE.page >= pages - 1, click: move(1) }, "Next"));
  return [make("div.scroll", {}, make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows.length ? rows : empty))), pager];
}

function show() {
  const hosts = HOSTS.filter(matches);
  for (const tile of document.querySelectorAll(".tile")) tile.setAttribute("aria-pressed", String(tile.dataset.verdict === STATE.verdict));
  showGrid(document.getElementById("cells"), hosts, STATE.place);
  document.getElementById("table").replaceChildren(...table(hosts));
  document.getElementById("shown").textContent = hosts.length === HOSTS.length ? plural(hosts.length, "host") : hosts.length.toLocaleString("en") + " of " + plural(HOSTS.length, "host");
}

// Paper has no pages to turn.
addEventListener("beforeprint", () => { rows_at_once = PAGE_OF_PAPER; show(); });
addEventListener("afterprint", () => { rows_at_once = PAGE; show(); });

(function start() {
  const grid = card("fleet", "Fleet");
  const cells = make("div.grid", { id: "cells", role: "group", "aria-label": "Hosts, one cell each; arrow keys move" });
  cells.addEventListener("click", (event) => { const found = event.target.closest(".cell"); if (found) openHost(found.dataset.host); });
  gridKeys(cells);
  grid.querySelector("header").append(legend());
  grid.append(cells);
  const hosts = card("hosts", "Hosts");
  hosts.querySelector("header").append(make("span.soft", { id: "shown", role: "status" }));
  hosts.append(make("div", { id: "table" }));
  const changed = listCard("changes", "Since the previous merge", plural(DATA.changes.length, "host") + " changed", DATA.changes, (c) => make("b", {}, c.kind), (c) => [c.host, c.text]);
  const about = listCard("problems", "About the reports", "what is missing, unreadable or doubtful", DATA.problems, (p) => make("b", {}, p.kind), (p) => [p.subject, p.text]);
  APP.replaceWith(...[tiles(), byCauseCard(), causesCard(), controls(), grid, chartsCard(), resultsCard(), driftCard(), changed, about, hosts].filter(Boolean));
  show();
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !DIALOG.open) { event.preventDefault(); document.getElementById("search").focus(); }
  });
  addEventListener("hashchange", openWanted);
  openWanted();
})();
