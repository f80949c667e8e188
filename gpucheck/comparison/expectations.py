"""Expectations: does the host match the expectations of your site?

Sources: the file of verify --expect, and the report itself: GPUs, topology, versions and measurements. One finding for
each expectation, with its line in the file. A value that is not reported is UNKNOWN; a limit of a value that this run
did not measure is SKIP.
"""

import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from gpucheck.comparison.rates import unread_nvlinks
from gpucheck.foreign.written import Hooks, Misplaced, Written, did_you_mean, whole
from gpucheck.knowledge import find_gpu, gpu_by_pci_id, gpus_of_family, similar_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, Partial, Report, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Value as Scalar
from gpucheck.model.measurements import COPIES, Number, numbers, of_gpus
from gpucheck.model.record import facts_of
from gpucheck.stack.versions import request

# The file: every key is optional, mistakes are reported by line.
SCHEMA = "gpucheck.expectations/1"
MAX_BYTES = 1 << 20
MOST_GPUS, MOST_GBIT = 1024, 100_000
CLASS = re.compile(r"PIX|PXB|PHB|NODE|SYS|NV\d{1,2}")
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS", "NV#")
# As nvidia-smi -c takes it.
MODE_NUMBERS = {"default": 0, "exclusive-thread": 1, "prohibited": 2, "exclusive-process": 3}
ByClass = dict[str, float] | float
"""A number for each path class, or for every pair."""


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """As in stack.yml, the start of a version, or a range."""

    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    tensorflow: str | None = None
    kernel_module: Literal["open", "proprietary"] | None = None


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """What every GPU must be; memory, power, NVLinks and PCIe are the least that will do. models: how many of each.

    pcie_generation: what card and slot allow together; an idle link lowers its own.
    """

    count: int | None = None
    model: str | None = None
    models: dict[str, int] = {}
    memory_mib: float | None = None
    vbios: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    compute_mode: Literal["default", "exclusive-process", "exclusive-thread", "prohibited"] | None = None
    power_limit_w: float | None = None
    nvlinks: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """How many RDMA devices there must be, and at least how many active ports of each rate (Gb/s)."""

    devices: int | None = None
    ports: dict[str, int] = {}


class Floors(msgspec.Struct, frozen=True, kw_only=True):
    """The least that will do, in the units of their names."""

    p2p_uni_gb_s: ByClass | None = None
    p2p_bidir_gb_s: ByClass | None = None
    h2d_gb_s: float | None = None
    d2h_gb_s: float | None = None


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """The most that will do, in the units of their names."""

    p2p_latency_us: ByClass | None = None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What one file states. pairs: how many GPU pairs there must be of each path class."""

    versions: Versions = Versions()
    gpus: Gpus = Gpus()
    pairs: dict[str, int] = {}
    network: Network = Network()
    floors: Floors = Floors()
    ceilings: Ceilings = Ceilings()


class Expectations(NamedTuple):
    """A file and what it states."""

    written: Written
    stated: Expected


def read(content: bytes | str, name: str) -> Expectations:
    """The expectations in a file's content. Raises DocumentProblem, which is one line with the place."""
    written = Written(content, name, unknown=True)
    if written.node is None:
        raise written.problem("there is nothing in it. Write at least gpus: {count: N} (docs/verify.md)")
    stated = written.read(Expected, TEXTS, BLOCKS, {}, SCHEMA)
    if stated == Expected():
        raise written.problem("expects nothing, so it would always pass. Write at least gpus: {count: N}")
    return Expectations(written, stated)


def _version(text: str) -> str:
    if not request(text).explicit:
        raise ValueError(f"{text} is not an expectation. Give the start of a version, or a range such as >=570,<590")
    return text


def _ports(found: dict[str, Any]) -> dict[str, Any]:
    if not all(key.isdecimal() and 0 < int(key) < MOST_GBIT for key in found):
        raise ValueError("a rate is a whole number of Gb/s, as in {400: 8}")
    return found


def _classes(found: dict[str, Any]) -> dict[str, Any]:
    for name in found:
        if not CLASS.fullmatch(name.upper()):
            raise Misplaced(name, f"no path class. {did_you_mean(name.upper(), CLASSES)}")
    return {name.upper(): inner for name, inner in found.items()}


TEXTS: Hooks = {
    **dict.fromkeys(("driver", "cuda", "torch", "tensorflow"), _version),
    **dict.fromkeys(("count", "gpus.models.*", "devices", "network.ports.*"), whole(0, MOST_GPUS)),
    "pairs.*": whole(0, MOST_GPUS**2),
    "nvlinks": whole(0, 64),
    "pcie_generation": whole(1, 8),
    "pcie_width": whole(1, 32),
}
BLOCKS: Hooks = {
    **dict.fromkeys(("pairs", "p2p_uni_gb_s", "p2p_bidir_gb_s", "p2p_latency_us"), _classes),
    "ports": _ports,
}
"""What the types do not state."""


# What the report of a host shows of it.
NAME = "expectations"
POWER_TOLERANCE_W = 1.0


class Stated(NamedTuple):
    """The expectations; each finding has its path in the file and its line as evidence."""

    written: Written
    expected: Expected

    def about(self, at: str, name: str = "host", unit: str | None = None, also: tuple[str, ...] = ()) -> Subject:
        place = f"{self.written.name}:{self.written.line(*at.split('.', 2))}: {at}"
        return Subject(check=NAME, name=name, unit=unit, evidence=(place, *also))

    def held(
        self, at: str, seen: Scalar, wanted: Scalar, code: str, *, unit: str | None = None, met: bool | None = None
    ) -> Finding:
        """Return PASS or FAIL about the host. met: None = equal is as expected."""
        subject = self.about(at, unit=unit)
        is_met = seen == wanted if met is None else met
        return subject.passes(seen, wanted) if is_met else subject.fails(code, seen, wanted, key=at)

    def not_reported(self, code: str, at: str, wanted: Scalar, *, subject: str = "host") -> Finding:
        """Return UNKNOWN: no evidence is not a PASS."""
        return self.about(at, subject).unknown(code, "not reported", wanted, key=at)

    def not_measured(self, code: str, at: str, wanted: Scalar) -> Finding:
        """Return SKIP: the run did not include this measurement."""
        return self.about(at).skips(code, "not measured", wanted, key=at)


class Trait(NamedTuple):
    """One key below ``gpus``, and the code if a GPU differs.

    place: of the fact. at_least: more is accepted too, and less by the tolerance.
    """

    key: str
    place: str
    code: str
    unit: str | None = None
    at_least: bool = False
    tolerance: float = 0.0

    def matches(self, seen: Any, wanted: Any) -> bool:
        return bool(seen >= wanted - self.tolerance if self.at_least else seen == wanted)


TRAITS = (
    Trait("memory_mib", "memory_mib", "comparison.memory-smaller", "MiB", at_least=True),
    Trait("vbios", "health.vbios", "comparison.vbios-differs"),
    Trait("ecc", "health.ecc", "comparison.ecc-differs"),
    Trait("mig", "health.mig", "comparison.mig-differs"),
    Trait("persistence", "health.persistence", "comparison.persistence-differs"),
    Trait("compute_mode", "health.compute_mode", "comparison.compute-mode-differs"),
    Trait("power_limit_w", "health.power_limit_w", "comparison.power-limit-lower", "W", True, POWER_TOLERANCE_W),
    Trait("nvlinks", "active_nvlinks", "comparison.nvlinks-fewer", "links", at_least=True),
    Trait("pcie_generation", "pcie.max_generation", "comparison.generation-lower", at_least=True),
    Trait("pcie_width", "pcie.width", "comparison.lanes-fewer", "lanes", at_least=True),
)


def evaluate(report: Report, expected: Expectations) -> Iterator[Finding]:
    """Yield findings named ``expectations``, in the order of the sections of the file."""
    stated = Stated(*expected)
    facts = facts_of(report.measurements)
    yield from _versions(report, facts, stated)
    yield from _gpus(facts, stated, report.partial, unread_nvlinks(report.findings))
    yield from _pairs(report, stated)
    yield from _network(facts, report.partial, stated)
    yield from limits(report, stated)


def _versions(report: Report, facts: Facts | None, stated: Stated) -> Iterator[Finding]:
    versions = stated.expected.versions
    for name in ("driver", "cuda", "torch", "tensorflow"):
        wanted, seen = getattr(versions, name), report.versions.get(name)
        if wanted is None:
            continue
        at, shown = f"versions.{name}", f"{name} {seen or 'not found'}"
        # Without an answer of NVML there is no CUDA version, and after a read that hangs there is none at all.
        if name not in report.versions or (name == "cuda" and seen is None):
            yield stated.about(at).unknown("comparison.version-unknown", "not reported", wanted, key=at, name=name)
        elif seen is not None and request(wanted).matches(seen.partition("+")[0]):
            yield stated.about(at).passes(shown, f"{name} {wanted}")
        else:
            yield stated.about(at).fails("comparison.version-differs", shown, f"{name} {wanted}", key=at, name=name)
    wanted = versions.kernel_module
    if wanted is not None:
        at, seen = "versions.kernel_module", facts.driver.loaded_flavour if facts else None
        if seen is None:
            yield stated.not_reported("comparison.flavor-unknown", at, wanted)
        else:
            yield stated.held(at, seen, wanted, "comparison.flavor-differs")


def _gpus(facts: Facts | None, stated: Stated, share: Partial | None, unread: set[str]) -> Iterator[Finding]:
    """unread: subjects of GPUs with NVLinks whose state is not known."""
    gpus = stated.expected.gpus
    if gpus == Gpus():
        return
    if facts is None or not facts.gpus:
        # Not listed is not absent: the driver and inventory checks distinguish the two.
        wanted = gpus.count
        if facts is not None and wanted == 0:
            yield stated.about("gpus.count", unit="GPUs").passes(0, 0)
        else:
            missing = "the expected GPUs" if wanted is None else wanted
            yield stated.not_reported("comparison.gpus-unlisted", "gpus", missing)
        return
    if gpus.count is not None:
        yield _count(len(facts.gpus) + len(share.hidden if share else ()), gpus.count, "gpus.count", "GPUs", stated)
    for name, count in gpus.models.items():
        if share is not None:
            yield stated.not_measured("comparison.share-only", f"gpus.models.{name}", count)
            continue
        there = sum(_is(gpu, name) for gpu in facts.gpus)
        yield _count(there, count, f"gpus.models.{name}", f"x {name}", stated)
    if gpus.model is not None:
        yield from _model(facts, gpus.model, stated)
    for trait in TRAITS:
        if (wanted := getattr(gpus, trait.key)) is not None:
            yield from _trait(facts, trait, wanted, stated, unread if trait.key == "nvlinks" else set())


def _count(seen: int, wanted: int, at: str, unit: str, stated: Stated) -> Finding:
    code = "comparison.gpus-missing" if seen < wanted else "comparison.gpus-surplus"
    return stated.held(at, seen, wanted, code, unit=unit)


def _is(gpu: Gpu, name: str) -> bool:
    """Compare by GPU table if it has the name, else by the name that NVML reports."""
    if gpu.name.lower() == name.lower():
        return True
    model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
    wanted = find_gpu(name)
    return model is not None and (model == wanted if wanted else model in gpus_of_family(name))


def _model(facts: Facts, name: str, stated: Stated) -> Iterator[Finding]:
    others = [gpu for gpu in facts.gpus if not _is(gpu, name)]
    near: tuple[str, ...] = ()
    code = "comparison.model-differs"
    if find_gpu(name) is None and not gpus_of_family(name):
        near = tuple(similar_gpus(name, 1))
        code = "comparison.model-misspelled" if near else "comparison.model-unknown"
    for gpu in others:
        subject = stated.about("gpus.model", f"gpu:{gpu.pci_bus_id}")
        yield subject.fails(code, gpu.name, name, key="gpus.model", near=near)
    if not others:
        yield stated.about("gpus.model").passes(f"{len(facts.gpus)} x {facts.gpus[0].name}", name)


def _trait(facts: Facts, trait: Trait, wanted: Any, stated: Stated, unread: set[str]) -> Iterator[Finding]:
    at, met = f"gpus.{trait.key}", 0
    for gpu in facts.gpus:
        subject, seen = f"gpu:{gpu.pci_bus_id}", attrgetter(trait.place)(gpu)
        if seen is None or (subject in unread and not trait.matches(seen, wanted)):
            yield stated.not_reported("comparison.value-missing", at, wanted, subject=subject)
        elif trait.matches(seen, wanted):
            met += 1
        else:
            option = MODE_NUMBERS.get(wanted, wanted)
            yield stated.about(at, subject, trait.unit).fails(trait.code, seen, wanted, key=at, option=option)
    if met == len(facts.gpus):
        least = " or more" if trait.at_least else ""
        yield stated.about(at).passes(f"{met} GPUs", f"{wanted}{f' {trait.unit}' if trait.unit else ''}{least}")


def _pairs(report: Report, stated: Stated) -> Iterator[Finding]:
    for cls, wanted in stated.expected.pairs.items():
        at = f"pairs.{cls}"
        if report.partial is not None:
            yield stated.not_measured("comparison.share-only", at, wanted)
            continue
        if report.topology is None:
            yield stated.not_reported("comparison.topology-unknown", at, wanted)
            continue
        classes = [pair.cls for pair in report.topology.pairs]
        seen = classes.count(cls)
        # A pair whose class is not known may be one of these.
        possible = None in classes and seen <= wanted <= seen + classes.count(None)
        if possible or (seen != wanted and cls.startswith("NV") and unread_nvlinks(report.findings)):
            yield stated.not_reported("comparison.topology-unknown", at, wanted)
            continue
        yield stated.held(at, seen, wanted, "comparison.pairs-differ", unit=f"pairs of {cls}")


def _network(facts: Facts | None, share: Partial | None, stated: Stated) -> Iterator[Finding]:
    """RDMA devices that are neither virtual functions nor bridges of switches, and their active ports."""
    wanted = stated.expected.network
    rates = {f"network.ports.{rate}": (float(rate), count) for rate, count in wanted.ports.items()}
    if share is not None or facts is None or facts.missing(["rdma"]):
        for at in ("network.devices", *rates) if wanted.devices is not None else rates:
            yield stated.not_reported("comparison.network-unknown", at, "those of the whole host")
        return
    devices = [one for one in facts.rdma or () if not one.is_virtual and one.kind != "switch"]
    names = ", ".join(one.name for one in devices)
    unread = any(one.unread or any(port.state is None for port in one.ports) for one in devices)
    if wanted.devices is not None:
        count, at, seen = wanted.devices, "network.devices", len(devices)
        code = "comparison.devices-missing" if seen < count else "comparison.devices-surplus"
        found = stated.held(at, seen, count, code, unit="RDMA devices")
        more = (names,) if names and seen != count else ()
        yield replace(found, evidence=(*found.evidence, *more))
    for at, (rate, count) in rates.items():
        active = [port for one in devices for port in one.ports if port.is_active and port.rate_gbit_s == rate]
        unit = f"active ports of {rate:g} Gb/s"
        if unread and len(active) < count:
            yield stated.not_reported("comparison.network-unknown", at, count)
        else:
            met = len(active) >= count
            yield stated.held(at, len(active), count, "comparison.ports-fewer", unit=unit, met=met)


# Slow pairs that a finding names; one slow switch makes hundreds.
SHOWN = 12


def limits(report: Report, stated: Stated) -> Iterator[Finding]:
    """Yield one finding for each limit: PASS, or the worst value, with the others as evidence."""
    measured = of_gpus(report.measurements)
    copies = measured.copies
    found = list(numbers(measured))
    for at, cls, limit, least in _stated(stated):
        if copies is None:
            yield _nothing(report, at, limit, stated)
            continue
        name = at.split(".")[1]
        values = [one for one in found if one.key == name and (cls is None or one.words == cls)]
        of_pairs = sum(cls is None or pair.cls in (None, cls) for pair in copies.pairs)
        asked = of_pairs if name.startswith("p2p_") else len(copies.host_device)
        judged = _evaluate(values, at, cls, limit, least=least, stated=stated)
        if len(values) == asked or (values and judged.verdict is Verdict.FAIL):
            yield judged
        else:
            lost, code = asked - len(values), "comparison.copies-failed"
            yield stated.about(at).unknown(code, "not reported", limit, key=at, missing=lost, of=asked)


def _stated(stated: Stated) -> Iterator[tuple[str, str | None, float, bool]]:
    """Yield path in the file, path class, limit, and whether it is a floor."""
    for part, least in (("floors", True), ("ceilings", False)):
        for name, value in asdict(getattr(stated.expected, part)).items():
            if isinstance(value, dict):
                yield from ((f"{part}.{name}.{cls}", cls, limit, least) for cls, limit in value.items())
            elif value is not None:
                yield f"{part}.{name}", None, value, least


def _nothing(report: Report, at: str, limit: float, stated: Stated) -> Finding:
    tried = [f for f in report.findings if f.check.startswith(COPIES) and f.verdict is not Verdict.SKIP]
    if any(f.check != "p2p-status" for f in tried):
        return stated.not_reported("comparison.no-copies", at, limit)
    return stated.not_measured("comparison.copies-skipped", at, limit)


def _evaluate(found: list[Number], at: str, cls: str | None, limit: float, *, least: bool, stated: Stated) -> Finding:
    unit = "us" if at.split(".")[1].endswith("_us") else "GB/s"
    if not found and cls is not None:
        return stated.about(at).fails("comparison.class-absent", f"no {cls} pair", limit, key=at, path=cls)
    if not found:
        return stated.not_reported("comparison.pair-missing", at, limit)
    worst = (min if least else max)(found, key=lambda number: number.value)
    bad = sorted((n for n in found if (n.value < limit) == least and n.value != limit), key=lambda n: n.value)
    if not bad:
        side = "slowest" if least else "longest"
        return stated.about(at).passes(f"{side} of {len(found)}: {worst.value:g} {unit}", f"{limit:g} {unit}")
    more = (f"{len(bad) - SHOWN} more",) if len(bad) > SHOWN else ()
    also = (*(f"{number.subject}: {number.value:g} {unit}" for number in bad[:SHOWN]), *more)
    code = "comparison.below-floor" if least else "comparison.above-ceiling"
    return stated.about(at, worst.subject, unit, also).fails(
        code, round(worst.value, 2), limit, key=at, count=len(bad), of=len(found)
    )
