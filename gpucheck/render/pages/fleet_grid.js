// Hosts by number -> objects, and the grid of one cell a host.
const text = (number) => (number < 0 ? null : DATA.texts[number]);
const ODD = new Map();
for (const outlier of DATA.outliers) {
  if (!ODD.has(outlier.host)) ODD.set(outlier.host, []);
  ODD.get(outlier.host).push(outlier);
}
const HOSTS = DATA.hosts.map((row) => {
  const [name, verdict, group, gpus, driver, system, training, profile, started, findings, metrics, attributes] = row;
  const host = { name, verdict, group: text(group), gpus: text(gpus), driver: text(driver), system: text(system) };
  host.training = text(training);
  host.profile = text(profile);
  host.started = started;
  host.findings = findings.map(([number, subject, also]) => {
    const [check, verdict, seen, why, fix, cause, follow] = DATA.findings[number];
    return { check, verdict, seen, why, fix, cause, follow, subject, also };
  });
  host.metrics = metrics.map(([number, value, gpu, gpuAt, pair, pairAt]) => (
    { name: DATA.metrics[number], value, gpu, gpuAt, pair, pairAt }
  ));
  host.attributes = attributes.map((number) => DATA.attributes[number]);
  host.odd = ODD.get(name) || [];
  const words = [name, verdict, host.group, host.gpus, host.driver, host.system];
  host.words = words.concat(host.findings.map((f) => f.check + " " + f.also + " " + (f.cause || (f.check === "fleet" ? "outlier" : ""))), host.attributes.map(([k, v]) => k + "=" + v)).join(" ").toLowerCase();
  return host;
});
const title = (metric) => DATA.titles[metric] || metric;
const BY_NAME = new Map(HOSTS.map((host) => [host.name, host]));
const CELLS_AT_ONCE = 5000;

// Attributes that place a host: between 2 and 200 values, and shared.
function places() {
  const values = new Map();
  for (const host of HOSTS) {
    for (const [name, value] of host.attributes) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value);
    }
  }
  const found = [...values].filter(([name, set]) => set.size > 1 && set.size <= Math.max(12, HOSTS.length / 4) && name !== "uplink");
  return found.map(([name]) => name).sort((a, b) => (b === "rack") - (a === "rack") || a.localeCompare(b));
}

function cell(host) {
  const problem = host.findings.find((f) => f.check !== "fleet") || host.findings[0];
  const told = host.name + ": " + host.verdict.toUpperCase() + (problem ? ", " + problem.check + ": " + problem.why : "")
    + (host.odd.length ? ", outlier" : "");
  const kind = "button.cell." + host.verdict + (host.odd.length ? ".odd" : "");
  return make(kind, { type: "button", tabindex: "-1", title: told, "aria-label": told, "data-host": host.name }, SHAPE[host.verdict]);
}

function byPlace(hosts, attribute) {
  const found = new Map();
  for (const host of hosts) {
    const values = host.attributes.filter(([name]) => name === attribute).map(([, value]) => value);
    const value = values.join(", ") || "unknown";
    if (!found.has(value)) found.set(value, []);
    found.get(value).push(host);
  }
  return [...found].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
}

function showGrid(target, hosts, attribute) {
  target.replaceChildren();
  target.classList.toggle("one", !attribute);
  const shown = hosts.slice(0, CELLS_AT_ONCE);
  for (const [value, members] of attribute ? byPlace(shown, attribute) : [["", shown]]) {
    const bad = members.filter((host) => host.verdict !== "pass").length;
    const title = attribute ? make("h3", {}, value + (bad ? " \u2014 " + bad + " of " + members.length + (bad === 1 ? " does" : " do") + " not pass" : "")) : null;
    target.append(make(members.length > 64 ? "div.place.big" : "div.place", {}, title, make("div.cells", {}, members.map(cell))));
  }
  if (!hosts.length) target.append(make("p.soft", {}, "No host fits this filter."));
  if (hosts.length > shown.length) {
    target.append(make("p.soft", {}, plural(hosts.length - shown.length, "more host") + ": search or filter to see them here. The table has all."));
  }
  const first = target.querySelector(".cell");
  if (first) first.tabIndex = 0;
}

// One tab stop for the whole grid; arrows move by what is nearest on the screen.
function gridKeys(target) {
  target.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" };
    const step = steps[event.key];
    const here = event.target.closest(".cell");
    if (step === undefined || !here) return;
    event.preventDefault();
    const cells = [...target.querySelectorAll(".cell")];
    const at = cells.indexOf(here);
    let next = step === "first" ? cells[0] : step === "last" ? cells[cells.length - 1] : cells[at + step];
    if (step === "down" || step === "up") next = nearest(cells, at, step === "down");
    if (!next) return;
    here.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

function nearest(cells, at, down) {
  const here = cells[at].getBoundingClientRect();
  let best = null;
  let distance = Infinity;
  for (let i = down ? at + 1 : at - 1; i >= 0 && i < cells.length && Math.abs(i - at) < 400; i += down ? 1 : -1) {
    const there = cells[i].getBoundingClientRect();
    const below = down ? there.top - here.top : here.top - there.top;
    if (below < 4) continue;
    const far = below * 3 + Math.abs(there.left - here.left);
    if (far < distance) [best, distance] = [cells[i], far];
  }
  return best;
}
