// Problems by cause, histograms a metric and group, what unhealthy hosts share, results, drift.
const CHARTS_AT_ONCE = 6;
const BINS = 28;

function histogram(group) {
  const values = [];
  for (const host of HOSTS) {
    if (host.group !== group.group) continue;
    for (const metric of host.metrics) if (metric.name === group.metric) values.push(metric.value);
  }
  const odd = DATA.outliers.filter((o) => o.metric === group.metric && o.group === group.group);
  const all = values.concat(odd.map((o) => o.value));
  let low = Math.min(...minmax(all));
  let high = Math.max(...minmax(all));
  if (low === high) { low -= Math.abs(low) * 0.05 || 1; high += Math.abs(high) * 0.05 || 1; }
  const counts = new Array(BINS).fill(0);
  for (const value of values) counts[Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS))] += 1;
  return { counts, low, high, odd };
}

// Math.min(...) of a hundred thousand numbers would overflow the stack.
function minmax(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function chart(group) {
  const { counts, low, high, odd } = histogram(group);
  const [width, height, base] = [360, 128, 104];
  const most = Math.max(...counts, 1);
  const x = (value) => 8 + ((value - low) / (high - low)) * (width - 16);
  const bars = counts.map((count, i) => {
    const tall = count ? Math.max(2, (count / most) * 84) : 0;
    const left = 8 + (i * (width - 16)) / BINS;
    const from = low + ((high - low) * i) / BINS;
    const told = plural(count, "host") + " from " + short(from) + " to " + short(from + (high - low) / BINS);
    return count ? draw("rect.bar", { x: left + 0.5, y: base - tall, width: (width - 16) / BINS - 1, height: tall }, draw("title", {}, told)) : null;
  });
  const marks = odd.slice(0, 300).map((o) => draw("path.mark", { d: "M" + x(o.value) + " " + (base - 9) + "l5 9h-10z" }, draw("title", {}, o.host + ": " + short(o.value))));
  const told = title(group.metric) + ": " + plural(group.hosts, "host") + ", median " + short(group.median) + ", " + plural(odd.length, "outlier");
  const svg = draw("svg", { viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": told },
    draw("line.axis", { x1: 8, x2: width - 8, y1: base, y2: base }), bars,
    draw("line.median", { x1: x(group.median), x2: x(group.median), y1: 8, y2: base }), marks,
    draw("text", { x: 8, y: height - 8 }, short(low)), draw("text", { x: width - 8, y: height - 8, "text-anchor": "end" }, short(high)),
    draw("text", { x: Math.min(Math.max(x(group.median), 90), width - 90), y: height - 8, "text-anchor": "middle" }, "median " + short(group.median)));
  const list = make("ul", {}, odd.slice(0, 5).map(outlierLine));
  const more = odd.length > 5 ? make("button.link", { type: "button", click: () => filterOn(group.metric) }, plural(odd.length - 5, "more outlier")) : null;
  const basis = group.basis === "model" ? ", too few to compare: compared with the model of the host" : "";
  return make("div.chart", {}, make("h3", { title: group.metric }, title(group.metric)), make("span.soft", {}, group.group + ", " + plural(group.hosts, "host") + basis), svg, list, more);
}

// How far off: degrees have no percent.
function away(outlier) {
  const degrees = title(outlier.metric).endsWith("(C)");
  const off = degrees ? short(outlier.value - outlier.normal) : outlier.percent;
  return (off > 0 ? "+" : "") + off + (degrees ? " \u00b0C" : " %");
}

function outlierLine(outlier) {
  const values = (outlier.at || "entire host") + ": " + short(outlier.value) + ", others " + short(outlier.normal);
  return make("li", {}, hostLink(outlier.host), make("span.soft", {}, values), make("span.off", {}, away(outlier)));
}

function hostLink(name) {
  return BY_NAME.has(name) ? make("button.link", { type: "button", click: () => openHost(name) }, name) : make("span", {}, name);
}

function chartsCard() {
  const section = card("numbers", "Measured numbers", "one value a host; triangles are outliers");
  if (!DATA.groups.length) {
    section.append(make("p.soft", {}, "No metric was measured on two hosts or more, so there is nothing to compare."));
    return section;
  }
  const count = (group) => DATA.outliers.filter((o) => o.metric === group.metric && o.group === group.group).length;
  const spread = DATA.groups.filter((group) => group.high > group.low || count(group));
  const equal = DATA.groups.length - spread.length;
  if (equal) section.append(make("p.soft", {}, plural(equal, "more metric") + (equal === 1 ? " is" : " are") + " the same on all hosts."));
  const ordered = spread.map((group) => [count(group) * 2 + (group.high > group.low), group]).sort((a, b) => b[0] - a[0]).map(([, group]) => group);
  const charts = make("div.charts", {}, ordered.slice(0, CHARTS_AT_ONCE).map(chart));
  section.append(charts);
  if (ordered.length > CHARTS_AT_ONCE) {
    const more = make("button.quiet", { type: "button" }, "Show " + plural(ordered.length - CHARTS_AT_ONCE, "more metric"));
    more.addEventListener("click", () => { charts.append(...ordered.slice(CHARTS_AT_ONCE).map(chart)); more.remove(); });
    section.append(make("div.pager", {}, more));
  }
  return section;
}

// One button a cause: it shows its hosts.
function byCauseCard() {
  const section = card("by-cause", "Problems by cause", DATA.by_cause.length ? "choose one to see its hosts" : "");
  if (!DATA.by_cause.length) section.append(make("p.soft", {}, HOSTS.length ? "No host has a problem." : "There are no hosts."));
  section.append(make("div.by-cause", {}, DATA.by_cause.map(([name, verdict, count]) => make("button.quiet", {
    type: "button", "data-cause": name, click: () => filterOn(name, ""),
  }, badge(verdict), " ", DATA.no_cause[name] || name, ": ", make("b", {}, plural(count, "host"))))));
  return section;
}

function causesCard() {
  if (!DATA.causes.length) return null;
  const section = card("causes", "What unhealthy hosts share", "associations, not proofs: check there first");
  for (const cause of DATA.causes) {
    const share = (label, having, all) => {
      const part = make("div", {});
      part.style.width = (100 * having) / Math.max(all, 1) + "%";
      return make("div.share", {}, make("span.soft", {}, label), make("div.track", { "aria-hidden": "true" }, part), make("span", {}, having + " of " + all));
    };
    section.append(make("div.cause", {}, make("div", {}, cause.text), share("unhealthy hosts", cause.sick_with, cause.sick),
      share("other hosts", cause.others_with, cause.others)));
  }
  return section;
}

function resultsCard() {
  if (!DATA.results.length) return null;
  const section = card("results", "Results of equal computations", "compared by digest, for equal models, versions and settings");
  const rows = DATA.results.map(([what, on, count, outcome, hosts]) => make("tr", {}, make("th", { scope: "row" }, what), make("td", {}, on),
    make("td.keep", {}, count), make("td", {}, outcome, hosts.length ? [": "].concat(names({ names: hosts, hosts: hosts.length })) : "")));
  const head = make("tr", {}, ["operation", "model and versions", "compared", "outcome"].map((t) => make("th", { scope: "col" }, t)));
  section.append(make("div.scroll", {}, make("table", {}, make("thead", {}, head), make("tbody", {}, rows))));
  return section;
}

function driftCard() {
  if (!DATA.drift.length) return null;
  const section = card("drift", "Drift", "what hosts that should be alike do not share");
  const rows = DATA.drift.flatMap((entry) => entry.values.map((v, i) => make("tr", {},
    i ? null : make("th", { scope: "row", rowspan: entry.values.length }, entry.attribute, make("div.soft", {}, entry.scope)),
    make(v.value.length < 48 ? "td.mono.keep" : "td.mono", {}, v.value), make("td.number", {}, v.hosts.toLocaleString("en")),
    make("td", {}, i || v.hosts <= 8 ? names(v) : "most hosts"))));
  const head = make("tr", {}, ["attribute", "value"].map((t) => make("th", { scope: "col" }, t)), make("th.number", { scope: "col" }, "hosts"), make("th", { scope: "col" }, "which"));
  section.append(make("div.scroll", {}, make("table", {}, make("thead", {}, head), make("tbody", {}, rows))));
  return section;
}

function names(value) {
  const shown = value.names.slice(0, 8).flatMap((name, i) => (i ? [", ", hostLink(name)] : [hostLink(name)]));
  return value.hosts > 8 ? shown.concat([" and " + (value.hosts - 8) + " more"]) : shown;
}

function listCard(id, title, note, entries, kind, words) {
  if (!entries.length) return null;
  const section = card(id, title, note);
  const rows = entries.slice(0, 200).map((entry) => make("tr", {}, make("td.keep", {}, kind(entry)), make("td.place-name", {}, hostLink(words(entry)[0])), make("td", {}, words(entry)[1])));
  section.append(make("div.scroll", {}, make("table", {}, make("tbody", {}, rows))));
  if (entries.length > 200) section.append(make("p.soft", {}, plural(entries.length - 200, "more entry").replace("entrys", "entries")));
  return section;
}
