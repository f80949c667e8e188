"""Computed results and losses of two reports of one host: equal GPUs, versions and settings give equal digests."""

from collections.abc import Iterator

from gpucheck.comparison.counters import NAME
from gpucheck.comparison.report_parts import Trained, changed_settings, computed_of, trained_of
from gpucheck.model import Finding, Report
from gpucheck.model.finding.about import About

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
