"""Baseline: is the host worse than in its own earlier report?

Sources: the report of verify --baseline and this one. Compared: verdicts of checks, missing GPUs, PCIe lanes and
generation, NVLinks, rates that are lower than the spreads of both runs explain (copies, collectives, matrix products,
memory, steps per second of trainings), digests of results and losses of equal versions and settings, and the rate of
counters between the two reports (averages since boot hide a recent burst). What is not comparable is named with the
reason. A link that lowers its generation while idle is not worse.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from gpucheck.comparison.counters import NAME, REGRESSION, deltas
from gpucheck.comparison.rates import slower
from gpucheck.comparison.report_parts import Trained, changed_settings, computed_of, health_of, trained_of
from gpucheck.model import Finding, PcieLink, Report, Verdict
from gpucheck.model.finding.about import About
from gpucheck.model.record import GpuRecord, HealthRecord

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
    """Yield findings named ``baseline``; one PASS if nothing is worse."""
    changed = tuple(_changed(before, now))
    about = About(check=NAME, evidence=(f"baseline: {before.started}", *changed))
    hours = _hours(before.started, now.started)
    if hours is None or hours < 0:
        why = f"the baseline is of {before.started}, which is not before this run ({now.started})"
        yield about.unknown(why, "give an earlier report of this host with --baseline", "no time in between")
        return
    then, record = health_of(before), health_of(now)
    found: list[Finding] = []
    if then is None or record is None:
        found.append(_no_record(about, "baseline" if then is None else "report"))
    else:
        found += [*_gpus(then, record, before.started), *_links(then, record), *deltas(then, record, hours)]
    found += slower(before, now)
    found += changed_results(before, now)
    found += _unreported(_verdicts(before, now), found)
    for finding in found:
        loud = finding.verdict in BAD
        yield msgspec.structs.replace(finding, evidence=(*finding.evidence, *changed)) if loud else finding
    if not any(finding.verdict in BAD for finding in found):
        yield about.passes(f"nothing is worse than {hours:.1f} h ago", f"as on {before.started}")


def _unreported(regressions: Iterator[Finding], reported: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the worst regression for each subject and cause that has no finding yet."""
    known = {(finding.subject, finding.cause) for finding in reported}
    for finding in sorted(regressions, key=lambda finding: -BAD[finding.verdict]):
        if (finding.subject, finding.cause) not in known:
            known.add((finding.subject, finding.cause))
            yield finding


def _no_record(about: About, which: str) -> Finding:
    why = f"the {which} holds no counters, so how fast they rise is not known"
    return about.skips(f"{why}: take the baseline with gpucheck verify --format json -o FILE")


def _hours(before: str, now: str) -> float | None:
    try:
        a, b = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (before, now))
    except ValueError:
        return None
    a, b = (time if time.tzinfo else time.replace(tzinfo=timezone.utc) for time in (a, b))
    return (b - a).total_seconds() / 3600


def _changed(before: Report, now: Report) -> Iterator[str]:
    """Yield what else is different, as evidence for a regression."""
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
    whole = _worst(before.findings, lambda finding: finding.check)
    for finding in now.findings:
        # A check that passes for the entire host names a subject only if it fails.
        of_check = whole.get(finding.check)
        earlier = then.get((finding.check, finding.subject), of_check if of_check and not _rank(of_check) else None)
        if finding.check != NAME and earlier is not None and _rank(finding) > _rank(earlier):
            yield _worse(finding, earlier, before.started)


def _worst(findings: Iterable[Finding], key: Callable[[Finding], Key]) -> dict[Key, Finding]:
    found: dict[Key, Finding] = {}
    for finding in findings:
        if key(finding) not in found or _rank(finding) > _rank(found[key(finding)]):
            found[key(finding)] = finding
    return found


def _rank(finding: Finding) -> int:
    return BAD.get(finding.verdict, 0)


def _worse(finding: Finding, earlier: Finding, started: str) -> Finding:
    skipped = earlier.verdict is Verdict.SKIP
    since = f"the baseline skipped it ({earlier.why})" if skipped else "it broke since the baseline"
    return Finding(
        check=NAME,
        verdict=finding.verdict,
        subject=finding.subject,
        seen=f"{finding.check}: {finding.verdict.value}",
        wanted=f"{earlier.verdict.value}, as on {started}",
        cause=finding.cause or REGRESSION,
        confidence=finding.confidence or "likely",
        why=f"{since}: {finding.why}",
        fix=finding.fix,
        evidence=finding.evidence,
    )


def _gpus(before: HealthRecord, now: HealthRecord, started: str) -> Iterator[Finding]:
    """Yield missing GPUs and replaced boards. If NVML lists no GPU at all, the driver check reports it."""
    if not now.gpus:
        return
    uuids, places = {gpu.uuid for gpu in now.gpus}, {gpu.bus_id: gpu for gpu in now.gpus}
    for gpu in before.gpus:
        if gpu.uuid in uuids:
            continue
        about = About(check=NAME, subject=f"gpu:{gpu.bus_id}", evidence=(f"then: {gpu.name} {gpu.uuid}",))
        other = places.get(gpu.bus_id)
        if other is not None:
            yield about.skips(
                f"another board is in this slot since the baseline, so its counters restarted ({other.uuid})"
            )
            continue
        why = "the GPU fell off the bus, lost power, or was removed"
        fix = f"dmesg | grep -e RmInitAdapter -e Xid; check power and seating of {gpu.bus_id}; reboot"
        yield about.fails("gone", f"{gpu.name}, as on {started}", why, fix, "gpu-lost", "likely")


def _links(before: HealthRecord, now: HealthRecord) -> Iterator[Finding]:
    then = {gpu.uuid: gpu for gpu in before.gpus}
    for gpu in now.gpus:
        old = then.get(gpu.uuid)
        if old is not None and old.bus_id == gpu.bus_id:
            yield from _narrower(f"gpu:{gpu.bus_id}", old.pcie, gpu.pcie)
            yield from _fewer(old, gpu)
    ports = {port.bus_id: port.link for port in before.ports}
    own = {gpu.bus_id for gpu in now.gpus}
    for port in now.ports:
        if port.bus_id in ports and port.bus_id not in own:
            yield from _narrower(f"link:{port.bus_id}", ports[port.bus_id], port.link)


def _narrower(subject: str, before: PcieLink, now: PcieLink) -> Iterator[Finding]:
    """Compare lanes and maximum generation: an idle link lowers its current generation."""
    about = About(
        check=NAME,
        subject=subject,
        evidence=(
            f"then Gen{before.generation} x{before.width}, at most Gen{before.max_generation} x{before.max_width}",
            f"now Gen{now.generation} x{now.width}, at most Gen{now.max_generation} x{now.max_width}",
        ),
    )
    why = "the link lost {} since the baseline: dirt, a loose card or riser, or a firmware setting"
    fix = "reseat the card or riser, clean the contacts, compare the BIOS settings, then reboot"
    if before.width and now.width and now.width < before.width:
        seen, wanted = f"x{now.width}", f"x{before.width}"
        yield about.fails(seen, wanted, why.format("lanes"), fix, "pcie-width-reduced", "likely")
    old, new = before.max_generation, now.max_generation
    if old and new and new < old:
        yield about.fails(f"Gen{new}", f"Gen{old}", why.format("speed"), fix, "pcie-link-downgraded", "likely")


def _fewer(before: GpuRecord, now: GpuRecord) -> Iterator[Finding]:
    lost = sorted({n.link for n in before.nvlinks if n.active} - {n.link for n in now.nvlinks if n.active})
    if lost:
        about = About(
            check=NAME,
            subject=f"gpu:{now.bus_id}",
            unit="links",
            evidence=(f"down since the baseline: {', '.join(map(str, lost))}",),
        )
        why = "NVLinks that were active are inactive"
        fix = "dmesg | grep -e knvlink -e Xid; reseat the bridge or baseboard, reset the GPU, then reboot"
        yield about.fails(now.active_nvlinks, before.active_nvlinks, why, fix, "nvlink-down", "certain")


CAUSE = "silent-corruption"
FIX = "confirm with gpucheck compute; if its results differ again, have the board replaced"
LOSSES = "run gpucheck compute, which compares the results of each GPU; then verify --baseline again"
SETTINGS = ("model", "precision", "backend", "placement", "world_size", "batch_per_rank", "steps", "seed")
# A switch that sums may round in another order: such runs are compared by tolerance only.
ROUNDED = "nvls"


def changed_results(before: Report, now: Report) -> Iterator[Finding]:
    """Yield findings on results that changed, and the reason where they are not comparable."""
    yield from _computed(before, now)
    old = trained_of(before)
    for name, run in trained_of(now).items():
        if name in old and run.placement != "cpu" and run.variant != ROUNDED:
            yield from _losses(name, old[name], run)


def _computed(before: Report, now: Report) -> Iterator[Finding]:
    old, new = computed_of(before), computed_of(now)
    if old is None or new is None:
        return
    if old.versions != new.versions:
        yield _not_comparable("results of compute", _difference(old.versions, new.versions))
        return
    then = {gpu.bus_id: gpu for gpu in old.gpus if gpu.is_gpu}
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
            yield _other_bits(bus_id or "", evidence, whole=whole)


def _other_bits(bus_id: str, evidence: list[str], *, whole: bool) -> Finding:
    about = About(check=NAME, subject=f"gpu:{bus_id}", evidence=tuple(evidence))
    why = "the same operations on the same data gave other bits than in the baseline: one of the two runs was wrong"
    seen = f"{len(evidence)} results differ"
    if whole:
        why += ", or a library changed, as all GPUs of the host differ"
        return about.warns(seen, "equal results", why, FIX, CAUSE, "possible")
    return about.fails(seen, "equal results", why, FIX, CAUSE, "likely")


def _losses(name: str, old: Trained, new: Trained) -> Iterator[Finding]:
    if old.loss_digest is None or new.loss_digest is None:
        return
    differ = changed_settings(old, new, SETTINGS)
    if (old.device_names, old.bus_ids) != (new.device_names, new.bus_ids):
        differ.append("other GPUs")
    if old.versions != new.versions:
        differ.append(_difference(old.versions, new.versions))
    if differ:
        yield _not_comparable(f"losses of {name}", "; ".join(differ))
    elif old.loss_digest != new.loss_digest:
        evidence = (f"digest of the losses: {old.loss_digest[:16]} then, {new.loss_digest[:16]} now",)
        why = (
            "a training with equal data, settings, GPUs and versions gave other losses than in the baseline: a GPU or "
            "a link returned wrong values in one of the two runs"
        )
        about = About(check=NAME, evidence=evidence)
        yield about.warns(f"{name}: the losses differ", "equal losses", why, LOSSES, CAUSE, "possible")


def _difference(old: dict[str, str | None], new: dict[str, str | None]) -> str:
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return "; ".join(f"{name} {old.get(name) or 'none'} then, {new.get(name) or 'none'} now" for name in names)


def _not_comparable(what: str, why: str) -> Finding:
    return About(check=NAME).skips(f"{what} are not comparable with the baseline: {why}", f"{what}: not comparable")
