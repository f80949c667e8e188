"""Baseline: is the host worse than in its own earlier report?

Sources: the report of verify --baseline and this one. Compared: verdicts of checks, missing GPUs, PCIe lanes and
generation, NVLinks, rates that are lower than the spreads of both runs explain (copies, collectives, matrix products,
memory, steps per second of trainings), digests of results and losses of equal versions and settings, and the rate of
counters between the two reports (averages since boot hide a recent burst); of network cards, found by PCI address or by
board and GUID, also presence, state and rate of ports. What is not comparable is named with the
reason. A link that lowers its generation while idle is not worse.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from gpucheck.checks.network.counters import Place, of_dated
from gpucheck.checks.pcie.errors import up_hours
from gpucheck.comparison.rates import (
    NAME,
    SETTINGS,
    changed_settings,
    changes,
    of_gpu,
    of_port,
    rises,
    slower,
    unread_nvlinks,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, PciDevice, PcieLink, Report, Verdict
from gpucheck.model.answer import timestamp
from gpucheck.model.compute import ComputeReport
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters, RdmaDevice
from gpucheck.model.measurements import ROUNDED, of_gpus
from gpucheck.model.record import UPTIME, facts_of
from gpucheck.model.smoke import SmokeResult

Key = TypeVar("Key")
BAD = {Verdict.WARN: 1, Verdict.UNKNOWN: 1, Verdict.FAIL: 2}


def not_comparable(before: Report, host: str, *, simulated: bool) -> str | None:
    """Return why a report is not a baseline for this host, None if it is one."""
    if before.interrupted:
        return "is a report of an interrupted run, so it is incomplete"
    if before.host != host:
        return f"is a report of {before.host}, and this is {host}"
    if before.simulated != simulated:
        words = {True: "SIMULATED hardware", False: "real hardware"}
        return f"is a report of {words[before.simulated]}, and this is {words[simulated]}"
    return None


def compare(before: Report, now: Report) -> Iterator[Finding]:
    """Yield findings named ``baseline``; one PASS if nothing is worse and something was compared."""
    changed = tuple(_changed(before, now))
    host = Subject(check=NAME, evidence=(f"baseline: {before.started}", *changed))
    earlier, later = timestamp(before.started), timestamp(now.started)
    if earlier is None or later is None or later < earlier:
        code, seen = "comparison.baseline-not-earlier", "no time in between"
        yield host.unknown(code, seen, then=before.started, now=now.started)
        return
    hours = (later - earlier) / 3600
    then, today = facts_of(before.measurements), facts_of(now.measurements)
    boards = [report.attributes.get("board", ()) for report in (before, now)]
    if then and today and all(boards) and boards[0] != boards[1] and _none_in_common(then.gpus, today.gpus):
        yield host.unknown("comparison.another-machine", then=", ".join(boards[0]), now=", ".join(boards[1]))
        return
    found: list[Finding] = []
    if then is None or today is None:
        found.append(host.skips("comparison.counters-missing", report="baseline" if then is None else "report"))
    else:
        found += [*_gone(then, today, before.started), *_parts(then, today, before.started, hours, now.findings)]
    found += slower(before, now)
    found += changed_results(before, now)
    found += _unreported(_verdicts(before, now), found)
    for finding in found:
        loud = finding.verdict in BAD
        yield msgspec.structs.replace(finding, evidence=(*finding.evidence, *changed)) if loud else finding
    both = {one.check for one in before.findings} & {one.check for one in now.findings}
    if not any(finding.verdict in BAD for finding in found) and (both or None not in (then, today)):
        yield host.passes(f"nothing is worse than {hours:.1f} h ago", f"as on {before.started}")


def _none_in_common(then: Sequence[Gpu], now: Sequence[Gpu]) -> bool:
    return bool(then and now) and not {gpu.uuid for gpu in then} & {gpu.uuid for gpu in now}


def _unreported(regressions: Iterator[Finding], reported: Iterable[Finding]) -> Iterator[Finding]:
    known = {(finding.subject, finding.cause) for finding in reported}
    for finding in sorted(regressions, key=lambda finding: -BAD[finding.verdict]):
        if (finding.subject, finding.cause) not in known:
            known.add((finding.subject, finding.cause))
            yield finding


def _changed(before: Report, now: Report) -> Iterator[str]:
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name), now.versions.get(name)
        if old != new:
            yield f"{name}: {old or 'none'} then, {new or 'none'} now"
    if before.system.kernel != now.system.kernel:
        yield f"kernel: {before.system.kernel} then, {now.system.kernel} now"
    for name in sorted({*before.attributes, *now.attributes} - {"uplink"}):
        then, today = before.attributes.get(name, ()), now.attributes.get(name, ())
        if then != today:
            yield f"{name}: {', '.join(then) or 'none'} then, {', '.join(today) or 'none'} now"


def _verdicts(before: Report, now: Report) -> Iterator[Finding]:
    """Yield every check that is worse about a subject than before. What was not checked then is not a regression."""
    then = _worst(before.findings, lambda finding: (finding.check, finding.subject))
    for finding in now.findings:
        of_check = [one for (check, _), one in then.items() if check == finding.check]
        earlier = then.get((finding.check, finding.subject)) or _of_check(of_check, finding)
        if finding.check != NAME and earlier is not None and _rank(finding) > _rank(earlier):
            yield _worse(finding, earlier, before.started)


def _of_check(then: list[Finding], now: Finding) -> Finding | None:
    """Return what a check stated about a subject that it did not name: it names one only if it fails.

    None if a finding about the host, or about a part of this subject, included it.
    """
    bad = [one for one in then if _rank(one)]
    if not bad:
        return then[0] if then else None
    known = set().union(*(_places(one.subject) for one in bad))
    new = not known & {"host", *_places(now.subject)} and now.subject != "host"
    return msgspec.structs.replace(bad[0], verdict=Verdict.PASS) if new else None


def _places(subject: str) -> set[str]:
    """Return the GPU, the card or the two of a pair; the host is one place."""
    return {*(subject.partition(":")[2] or subject).partition("/")[0].split("-")}


def _worst(findings: Iterable[Finding], key: Callable[[Finding], Key]) -> dict[Key, Finding]:
    found: dict[Key, Finding] = {}
    for finding in findings:
        if key(finding) not in found or _rank(finding) > _rank(found[key(finding)]):
            found[key(finding)] = finding
    return found


def _rank(finding: Finding) -> int:
    return BAD.get(finding.verdict, 0)


def _worse(finding: Finding, earlier: Finding, started: str) -> Finding:
    """Return the same fault as a finding of this check: it broke since then, or was skipped."""
    skipped = (f"skipped then: {earlier.why}",) if earlier.verdict is Verdict.SKIP else ()
    unknown = finding.verdict is Verdict.UNKNOWN  # not known to be worse
    return Finding(
        check=NAME,
        verdict=finding.verdict,
        subject=finding.subject,
        code=finding.code,
        values=finding.values,
        seen=f"{finding.check}: {finding.verdict.value}",
        wanted=f"{earlier.verdict.value}, as on {started}",
        cause=None if unknown else finding.cause or "regression",
        confidence=None if unknown else finding.confidence or "likely",
        because_of=finding.because_of or finding.check if unknown else None,
        why=finding.why,
        fix=finding.fix,
        steps=finding.steps,
        evidence=(*finding.evidence, *skipped),
    )


def _gone(before: Facts, now: Facts, started: str) -> Iterator[Finding]:
    if not now.gpus:
        return
    uuids, places = {gpu.uuid for gpu in now.gpus}, {gpu.pci_bus_id for gpu in now.gpus}
    for gpu in before.gpus:
        if gpu.uuid in uuids:
            continue
        subject = Subject(check=NAME, name=f"gpu:{gpu.pci_bus_id}", evidence=(f"then: {gpu.name} {gpu.uuid}",))
        if gpu.pci_bus_id in places:
            yield subject.skips("comparison.board-replaced")
        else:
            yield subject.fails("comparison.gpu-gone", "gone", f"{gpu.name}, as on {started}")


def _parts(before: Facts, now: Facts, started: str, hours: float, found: Iterable[Finding]) -> Iterator[Finding]:
    """found: of the checks of this run, which distinguish NVLinks that sleep or are not reported from lost ones."""
    unread, asleep = unread_nvlinks(found), {one.subject for one in found if one.code == "nvlink.links-asleep"}
    gpus, uptime = {gpu.uuid: gpu for gpu in before.gpus}, up_hours(now.texts[UPTIME])
    for gpu in now.gpus:
        if (old := gpus.get(gpu.uuid)) is not None:
            if old.pci_bus_id == gpu.pci_bus_id:
                yield from _narrower(f"gpu:{gpu.pci_bus_id}", old.pcie, gpu.pcie)
                if (subject := f"gpu:{gpu.pci_bus_id}") not in asleep:
                    yield from _fewer(old, gpu, unread=subject in unread)
            yield from rises(f"gpu:{gpu.pci_bus_id}", of_gpu(old, gpu), hours, uptime)
    yield from _nics(before, now, started, hours, uptime)
    ports, own = {port.bus_id: port for port in before.pci}, {gpu.pci_bus_id: gpu for gpu in now.gpus}
    for port in now.pci:
        then, of = ports.get(port.bus_id), own.get(port.bus_id)
        if then is not None and of is None:
            yield from _narrower(f"{'nic' if port.infiniband_names else 'link'}:{port.bus_id}", then.link, port.link)
        # A GPU reports the errors of its own function itself.
        if then is not None and (of is None or of.health.pcie_errors.correctable is None):
            subject = f"{'link' if of is None else 'gpu'}:{port.bus_id}"
            yield from rises(subject, of_port(then, port), hours, uptime)


def _narrower(name: str, before: PcieLink, now: PcieLink) -> Iterator[Finding]:
    """Compare lanes and maximum generation: an idle link lowers its current generation."""
    subject = Subject(
        check=NAME,
        name=name,
        evidence=(
            f"then Gen{before.generation} x{before.width}, at most Gen{before.max_generation} x{before.max_width}",
            f"now Gen{now.generation} x{now.width}, at most Gen{now.max_generation} x{now.max_width}",
        ),
    )
    if before.width and now.width and now.width < before.width:
        yield subject.fails("comparison.lanes-lost", f"x{now.width}", f"x{before.width}")
    old, new = before.max_generation, now.max_generation
    if old and new and new < old:
        yield subject.fails("comparison.generation-lost", f"Gen{new}", f"Gen{old}")


def _fewer(before: Gpu, now: Gpu, *, unread: bool) -> Iterator[Finding]:
    """Compare NVLinks. unread: NVML did not report a state, so links that are not listed may be up."""
    up = {one.link for one in before.nvlinks if one.active}
    off = {one.link for one in now.nvlinks if not one.active}
    lost = sorted(up & off if unread else up - {one.link for one in now.nvlinks if one.active})
    if lost:
        evidence = (f"down since the baseline: {', '.join(map(str, lost))}",)
        subject = Subject(check=NAME, name=f"gpu:{now.pci_bus_id}", unit="links", evidence=evidence)
        yield subject.fails("comparison.nvlinks-lost", now.active_nvlinks, before.active_nvlinks)


def changed_results(before: Report, now: Report) -> Iterator[Finding]:
    """Yield findings on results that changed, and the reason where they are not comparable."""
    old, new = of_gpus(before.measurements), of_gpus(now.measurements)
    if old.compute is not None and new.compute is not None:
        yield from _computed(old.compute, new.compute)
    for name, run in new.trainings.items():
        if name in old.trainings and run.variant != ROUNDED:
            yield from _losses(name, old.trainings[name], run)


def _computed(old: ComputeReport, new: ComputeReport) -> Iterator[Finding]:
    if old.versions != new.versions:
        yield _not_comparable("results of compute", changes(old.versions, new.versions))
        return
    then = {gpu.bus_id: gpu for gpu in old.gpus}
    pairs = [(then[gpu.bus_id], gpu) for gpu in new.gpus if gpu.bus_id in then]
    same = [(was, gpu) for was, gpu in pairs if (was.uuid, was.name) == (gpu.uuid, gpu.name)]
    odd = {
        gpu.bus_id: [
            f"{what}: {was.digests[what]} then, {digest} now"
            for what, digest in gpu.digests.items()
            if was.digests.get(what, digest) != digest
        ]
        for was, gpu in same
    }
    whole = len(odd) > 1 and all(odd.values())
    for bus_id, evidence in odd.items():
        if evidence:
            verdict = Verdict.WARN if whole else Verdict.FAIL
            code = "comparison.all-results-differ" if whole else "comparison.results-differ"
            subject = Subject(check=NAME, name=f"gpu:{bus_id or ''}", evidence=tuple(evidence))
            yield subject.finding(verdict, code, f"{len(evidence)} results differ", "equal results")


def _losses(name: str, old: SmokeResult, new: SmokeResult) -> Iterator[Finding]:
    if old.loss_digest is None or new.loss_digest is None:
        return
    differ = changed_settings(old, new, (*SETTINGS, "steps", "seed"))
    if (old.device_names, old.bus_ids) != (new.device_names, new.bus_ids):
        differ += ("GPUs",)
    differ += changes(old.versions, new.versions)
    if differ:
        yield _not_comparable(f"losses of {name}", differ)
    elif old.loss_digest != new.loss_digest:
        evidence = (f"digest of the losses: {old.loss_digest[:16]} then, {new.loss_digest[:16]} now",)
        seen = f"{name}: the losses differ"
        yield Subject(check=NAME, evidence=evidence).warns("comparison.losses-differ", seen, "equal losses")


def _not_comparable(what: str, differ: tuple[str, ...]) -> Finding:
    seen = f"{what}: not comparable"
    return Subject(check=NAME).skips("comparison.settings-changed", seen, what=what, changes=differ)


# Network cards: each is compared with the same card.
def _nics(before: Facts, now: Facts, started: str, hours: float, uptime: float | None) -> Iterator[Finding]:
    """A card is the same at its PCI address, else by board and GUID. hours: between the reports; uptime: since boot."""
    if now.missing(["rdma"]):
        return  # they could not be read, which their checks report
    left = {pci.bus_id: (pci, device) for pci, device in _cards(before)}
    moved = {_identity(pci, device): bus_id for bus_id, (pci, device) in left.items() if device.card}
    for pci, device in _cards(now):
        place = pci.bus_id if pci.bus_id in left else moved.get(_identity(pci, device), "")
        was = left.pop(place, None)
        if was is not None:
            subject = Subject(check=NAME, name=f"nic:{pci.bus_id}")
            yield from _nic_ports(subject, was[1], device, started)
            yield from _nic_counters(subject, (before, was[1]), (now, device), hours, uptime)
    for bus_id, (_, device) in left.items():
        if any(port.is_active for port in device.ports):
            subject = Subject(check=NAME, name=f"nic:{bus_id}")
            yield subject.fails("comparison.nic-gone", "gone", f"{device.name}, as on {started}", device=device.name)


def _cards(facts: Facts) -> Iterator[tuple[PciDevice, RdmaDevice]]:
    named = {device.name: device for device in facts.rdma or () if not device.is_virtual}
    return ((pci, named[name]) for pci in facts.pci for name in pci.infiniband_names if name in named)


def _identity(pci: PciDevice, device: RdmaDevice) -> tuple[str | None, ...]:
    return device.board, device.card, pci.bus_id.rpartition(".")[2]


def _nic_ports(subject: Subject, before: RdmaDevice, now: RdmaDevice, started: str) -> Iterator[Finding]:
    then = {port.number: port for port in before.ports if port.is_active}
    for port in now.ports:
        old = then.get(port.number)
        if old is None or port.state is None:
            continue
        if not port.is_active:
            yield subject.fails("comparison.nic-port-lost", port.state, "active", device=now.name, port=port.number)
        elif old.rate_gbit_s and port.rate_gbit_s and port.rate_gbit_s < old.rate_gbit_s:
            seen, wanted = f"{port.rate_gbit_s:g} Gb/s", f"{old.rate_gbit_s:g} Gb/s, as on {started}"
            yield subject.fails("comparison.nic-slower", seen, wanted, device=now.name, port=port.number)


def _nic_counters(
    subject: Subject,
    before: tuple[Facts, RdmaDevice],
    now: tuple[Facts, RdmaDevice],
    hours: float,
    uptime: float | None,
) -> Iterator[Finding]:
    """What rose by more than a healthy link has. After a reboot or a reload of the driver counters begin at zero."""
    (old, was), (new, device) = before, now
    if was.card != device.card:
        return  # the board was replaced
    then = {one.port.rpartition("/")[2]: one for one in old.counters_at_start or () if one.port == _key(was, one)}
    for one in new.counters_at_start or ():
        first = then.get(one.port.rpartition("/")[2]) if one.port == _key(device, one) else None
        if first is None:
            continue
        started_again = any(value < first.values.get(name, 0) for name, value in one.values.items())
        over = min(hours, uptime) if started_again and uptime is not None else hours
        base = dict.fromkeys(one.values, 0) if started_again else first.values
        pair = (
            PortCounters(port=one.port, values=base, seconds=0.0),
            PortCounters(port=one.port, values=one.values, seconds=3600 * over),
        )
        rates = [port.rate_gbit_s for port in device.ports if f"{device.name}/{port.number}" == one.port]
        found = of_dated(pair, {one.port: Place(subject, rates[0] if rates else None)})
        yield from (finding for finding in found if finding.verdict is Verdict.WARN)


def _key(device: RdmaDevice, one: PortCounters) -> str:
    return f"{device.name}/{one.port.rpartition('/')[2]}"
