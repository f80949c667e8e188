// One host in a dialog; its address is #host=NAME, so that it can be sent to a colleague.
const DIALOG = document.getElementById("host");
let cameFrom = null;

function openHost(name) {
  const host = BY_NAME.get(name);
  if (!host) {
    document.getElementById("shown").textContent = "No host is called " + name + ".";
    return;
  }
  if (!DIALOG.open) cameFrom = document.activeElement;
  const close = make("button.quiet", { type: "button", click: () => DIALOG.close() }, "Close");
  const mark = host.profile ? make("span.badge.warn", {}, "SIMULATED " + host.profile) : null;
  const header = make("header", {}, make("h2", { id: "host-name" }, host.name), badge(host.verdict), mark, close);
  DIALOG.replaceChildren(header, make("div", {}, facts(host), findings(host), metrics(host), attributes(host)));
  if (!DIALOG.open) DIALOG.showModal();
  DIALOG.scrollTop = 0;
  close.focus();
  history.replaceState(null, "", "#host=" + encodeURIComponent(name));
}

// An address that changes in an open tab, too.
function openWanted() {
  const wanted = new URLSearchParams(location.hash.slice(1)).get("host");
  if (wanted) openHost(wanted);
  else if (DIALOG.open) DIALOG.close();
}

function facts(host) {
  const pairs = { GPUs: host.gpus, driver: host.driver, system: host.system, training: host.training, "report made": host.started, "compared with": host.group };
  const told = Object.entries(pairs).filter(([, value]) => value);
  return make("dl.facts", {}, told.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function findings(host) {
  if (!host.findings.length) return make("section", {}, make("h3", {}, "Findings"), make("p.soft", {}, "Nothing is wrong."));
  return make("section", {}, make("h3", {}, plural(host.findings.length, "finding")), host.findings.map((f) => make("div.finding." + f.verdict, {},
    make("div", {}, badge(f.verdict), " ", make("b", {}, f.check), f.subject ? " " + f.subject : null),
    make("p", {}, make("b", {}, f.seen)), f.why !== f.seen ? make("p", {}, make("span.soft", {}, "why "), f.why) : null,
    f.fix ? make("p", {}, make("span.soft", {}, "fix "), f.fix) : null, f.cause ? make("p", {}, make("span.soft", {}, "cause "), f.cause) : null,
    f.also ? make("p", {}, make("span.soft", {}, "also found by "), f.also) : null,
    f.follow ? make("p.soft", {}, f.follow) : null)));
}

function metrics(host) {
  if (!host.metrics.length) return null;
  const rows = host.metrics.map((metric) => {
    const group = DATA.groups.find((g) => g.metric === metric.name && g.group === host.group);
    const odd = host.odd.find((o) => o.metric === metric.name);
    const off = group && group.median ? (100 * (metric.value - group.median)) / Math.abs(group.median) : null;
    return make("tr", {}, make("th", { scope: "row", title: metric.name }, title(metric.name)), make("td.number", {}, short(metric.value)),
      make("td.number", {}, group ? short(group.median) : "\u2013"), make("td.number", {}, off === null ? "\u2013" : (off > 0 ? "+" : "") + off.toFixed(1) + " %"),
      make("td.keep", {}, metric.gpu === null ? "" : make("span.mono", {}, metric.gpuAt), metric.gpu === null ? "" : " " + short(metric.gpu)),
      make("td", {}, odd ? make("span.off", {}, away(odd) + (odd.at ? " at " + odd.at : ", entire host")) : ""));
  });
  const head = ["metric", "here", "group median", "off", "worst GPU", "outlier"].map((t, i) => make(i && i < 4 ? "th.number" : "th", { scope: "col" }, t));
  return make("section", {}, make("h3", {}, "Measured numbers"), make("div.scroll", {}, make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows))));
}

function attributes(host) {
  if (!host.attributes.length) return null;
  const by = new Map();
  for (const [name, value] of host.attributes) by.set(name, (by.get(name) || []).concat(value));
  return make("section", {}, make("h3", {}, "Attributes"), make("dl.facts", {}, [...by].map(([name, values]) => make("div", {}, make("dt", {}, name), make("dd.mono", {}, values.join(", "))))));
}

DIALOG.addEventListener("close", () => {
  history.replaceState(null, "", location.pathname + location.search);
  if (cameFrom && cameFrom.isConnected) cameFrom.focus();
});
DIALOG.addEventListener("click", (event) => { if (event.target === DIALOG) DIALOG.close(); });
