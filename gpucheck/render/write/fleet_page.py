"""A merged fleet report as one self-contained page."""

from collections import defaultdict
from typing import Any

import msgspec

from gpucheck.model import Verdict, by_root, where
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.model.measurements import metric_title
from gpucheck.render.findings import not_run
from gpucheck.render.subjects.fleet import NO_CAUSE, by_cause, place, results
from gpucheck.render.words import headline, observed
from gpucheck.render.write import html

STYLES = ("tokens.css", "parts.css", "fleet.css")
SCRIPTS = ("page.js", "fleet_grid.js", "fleet_charts.js", "fleet_host.js", "fleet.js")
WORST_FIRST = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)
# Without scripts the page still names the hosts that do not pass, but not ten thousand of them.
PLAIN_ROWS = 200


def to_html(fleet: FleetReport) -> str:
    """The page. Its size grows by about 500 bytes a host."""
    bad = sorted((r for r in fleet.hosts if r.verdict is not Verdict.PASS), key=lambda r: WORST_FIRST.index(r.verdict))
    return html.page(
        "fleet.html.j2",
        verdict=fleet.verdict,
        data=_data(fleet),
        styles=STYLES,
        scripts=SCRIPTS,
        fleet=fleet,
        plain=[(row, [one.lead for one in by_root(row.problems)[0]]) for row in bad[:PLAIN_ROWS]],
        left=max(0, len(bad) - PLAIN_ROWS),
        headline=headline,
    )


class _Table:
    """Each text once, by number: ten thousand hosts report the same."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, key: Any) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def entries(self) -> list[Any]:
        return list(self.numbers)


def _data(fleet: FleetReport) -> dict[str, Any]:
    texts, metrics, findings, attributes = _Table(), _Table(), _Table(), _Table()
    hosts = [_host(row, texts, metrics, findings, attributes) for row in fleet.hosts]
    rows = {row.host: row for row in fleet.hosts}
    names = {*metrics.entries(), *(outlier.metric for outlier in fleet.outliers)}
    return {
        "verdict": fleet.verdict.value,
        "simulated": fleet.simulated,
        "started": fleet.started,
        "counts": fleet.counts,
        "hosts": hosts,
        "texts": texts.entries(),
        "metrics": metrics.entries(),
        "findings": findings.entries(),
        "attributes": attributes.entries(),
        "groups": [g for g in fleet.metrics if g.hosts > 1],
        "outliers": [msgspec.structs.replace(o, at=place(o, rows[o.host]) if o.at else None) for o in fleet.outliers],
        "by_cause": [(name, verdict.value, count) for name, verdict, count in by_cause(fleet.hosts)],
        "no_cause": NO_CAUSE,
        "titles": {name: metric_title(name) for name in names},
        "results": results(fleet),
        "drift": fleet.drift,
        "causes": fleet.causes,
        "changes": fleet.changes,
        "problems": fleet.problems,
    }


def _host(row: FleetRow, texts: _Table, metrics: _Table, findings: _Table, attributes: _Table) -> msgspec.Raw:
    """By position: name, verdict, group, GPUs, driver, system, training, profile, started, findings, metrics,
    attributes. Texts by number, -1 for no text; findings with their subject and the other checks that found the same
    fault; metrics with what was worst.

    Encoded at once: lists of a hundred thousand hosts take more memory than the fleet.
    """
    own, checks = by_root(row.problems)
    follow = defaultdict(str, {root: not_run(found) for root, found in checks.items()})
    words = (row.group, row.gpus, row.driver, row.system, row.training, row.simulation if row.simulated else None)
    cells = [
        row.host,
        row.verdict.value,
        *(-1 if word is None else texts.number(word) for word in words),
        row.started,
        [
            [
                findings.number((f.check, f.verdict.value, observed(f), f.why, f.fix, f.cause, follow[f.check])),
                where(f),
                ", ".join(dict.fromkeys(other.check for other in also)),
            ]
            for f, also in own
        ],
        [[metrics.number(name), m.host, m.gpu, m.gpu_at, m.pair, m.pair_at] for name, m in row.metrics.items()],
        [attributes.number((name, text)) for name, found in row.attributes.items() for text in found],
    ]
    return msgspec.Raw(msgspec.json.encode(cells))
