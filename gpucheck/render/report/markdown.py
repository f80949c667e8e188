"""A host's report as a rig card: one page of GitHub-flavored Markdown to paste into an issue."""

from collections.abc import Iterator

from gpucheck.model import Report, Verdict
from gpucheck.model.finding import Finding
from gpucheck.printable import of_printable
from gpucheck.render.copies.measured import Copies, copies
from gpucheck.render.findings import confirm
from gpucheck.render.findings.groups import Group, group_equal
from gpucheck.render.findings.text import TROUBLE, how_sure, others, worst_first
from gpucheck.render.markdown import Change, Markdown, table, unchanged
from gpucheck.render.report import markdown_copies, markdown_gpus
from gpucheck.render.report.text import bus_ids
from gpucheck.render.words import count_models, counts_line, paragraphs, value

MOST_LINES = 60
FINDINGS = 8
LONGEST = 160
# With another verdict the value was not read.
READ = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
NOT_LISTED = ("gpucheck", "driver", "cuda")
# Checks whose values do not name their quantity.
PREFIX = {"bar1": "BAR1", "fabric": "fabric:"}
# What a copy between GPUs depends on, in the order of the card.
SETTINGS = ("iommu", "acs", "bar1", "fabric", "mig", "persistence", "cpu-governor")


def to_markdown(report: Report, *, mark: str = "", change: Change = unchanged) -> str:
    """Return the card, at most MOST_LINES lines.

    mark: where a replayed report comes from. change: redaction; without it, the host is named.
    """
    return _card(report, Markdown(change), mark.strip(), named=change is unchanged)


@of_printable
def _card(report: Report, page: Markdown, mark: str, *, named: bool) -> str:
    found = copies(report)
    parts = [
        list(_head(report, page, mark)),
        list(_findings(report, page)),
        list(_machine(report, found, page, named=named)),
        list(markdown_gpus.section(report, found, page)),
    ]
    room = MOST_LINES - sum(len(part) + 1 for part in parts if part)
    return paragraphs([*parts, markdown_copies.section(found, page, room)])


def _head(report: Report, page: Markdown, mark: str) -> Iterator[str]:
    yield f"## {report.verdict.name}: gpucheck verify"
    yield ""
    if report.simulated:
        simulation = report.simulation
        faults = f" with {', '.join(simulation.faults)}" if simulation and simulation.faults else ""
        machine = f": {simulation.profile}{faults}" if simulation else ""
        yield f"**SIMULATED** hardware{page.text(machine)}. No real GPU was read."
        yield ""
    if mark:
        yield page.text(f"{mark[0].upper()}{mark[1:]}.")
        yield ""
    summary = f"gpucheck {report.versions.get('gpucheck') or ''}, {report.started}: {counts_line(report.counts)}."
    unproven = f" Not proven: {'; '.join(report.not_proven)}." if report.not_proven else ""
    yield page.text(f"{summary}{unproven}")


def _findings(report: Report, page: Markdown) -> Iterator[str]:
    """What is wrong, each with its cause and the command that confirms it; and what passes for a known cause."""
    rows: list[list[str]] = []
    for verdict, groups, _ in worst_first(report.findings, bus_ids(report)):
        if verdict in TROUBLE:
            rows += [_finding(group, page) for group in groups]
        elif verdict is Verdict.PASS:
            rows += [
                _finding(group, page)
                for group in groups
                if group.first.cause and group.first.confidence in ("certain", "likely")
            ]
    if not rows:
        yield "Nothing is wrong." if report.verdict is Verdict.PASS else "Nothing was evaluated."
        return
    if len(rows) > FINDINGS:
        more = f"and {len(rows) - FINDINGS + 1} findings more: gpucheck verify --format text"
        rows = [*rows[: FINDINGS - 1], ["", more, "", ""]]
    yield from table(("verdict", "finding", "cause", "command that confirms it"), rows)


def _finding(group: Group, page: Markdown) -> list[str]:
    first = group.first
    command = confirm.command(group.findings)
    return [
        f"**{first.verdict.name}**",
        page.text(_short(f"{', '.join(group.checks)}: {group.headline}")),
        _cause(group, page) or page.text(_short(group.why)),
        page.code(command) if command else "",
    ]


def _cause(group: Group, page: Markdown) -> str:
    if not group.first.cause:
        return ""
    texts = [f"{group.first.cause} ({how_sure(group)})"]
    texts += [f"or {one.cause}" for one in others(group)]
    return page.text(", ".join(texts))


def _machine(report: Report, found: Copies | None, page: Markdown, *, named: bool) -> Iterator[str]:
    rows = [[label, page.text(text)] for label, text in _facts(report, found, named=named) if text]
    yield "### Machine"
    yield ""
    yield from table(("part", "value"), rows)


def _facts(report: Report, found: Copies | None, *, named: bool) -> Iterator[tuple[str, str]]:
    system, versions, common = report.system, report.versions, report.attributes
    if named:
        yield "host", report.host
    bios = [f"BIOS {value}" for value in common.get("bios", ())]
    virtual = f"virtual machine ({system.virtual})" if system.virtual else ""
    yield "board", _joined(*common.get("board", ()), *bios, virtual, system.container)
    seen = found.observations.host if found else None
    if seen is not None and seen.cpu:
        yield "CPU", f"{seen.sockets} x {seen.cpu}" if seen.sockets else seen.cpu
    yield "GPUs", _gpus(report)
    yield "system", _joined(system.os_name, f"kernel {system.kernel}", system.arch)
    module = _joined(*(f"{name} kernel modules" for name in common.get("module", ())))
    numbers = {**versions, "CUDA": versions.get("cuda")}
    known = [f"{name} {numbers[name]}" for name in ("CUDA", *versions) if name not in NOT_LISTED and numbers[name]]
    driver = f"driver {versions['driver']}" if versions.get("driver") else "no driver"
    driver += f" ({module})" if module else ""
    held = common.get("hold", ())
    yield "driver set", _joined(driver, *known, f"held: {_joined(*held)}" if held else "")
    yield "settings", "; ".join(_settings(report))


def _gpus(report: Report) -> str:
    if report.topology is None:
        return ""
    vbios = report.attributes.get("vbios", ())
    return _joined(*count_models(report.topology.gpus), f"VBIOS {' and '.join(vbios)}" if vbios else "") or "none"


def _settings(report: Report) -> Iterator[str]:
    """What the checks read, whether they passed or not."""
    for check in SETTINGS:
        evaluated = [f for f in report.findings if f.check == check and f.verdict in READ and f.seen is not None]
        yield from dict.fromkeys(_setting(group) for group in group_equal(evaluated, bus_ids(report)))


def _setting(group: Group) -> str:
    first: Finding = group.first
    words = value(first, first.seen)
    read = " ".join(filter(None, (PREFIX.get(first.check), words)))
    return _short(f"{read} ({group.where})" if group.where else read)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3].rstrip()}..."


def _joined(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
