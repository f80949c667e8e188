"""Links above the GPUs as their registers tell: a switch's way up to the CPU, and the chipset."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed, span
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.rules._links import FITS_TO, contradicted, narrowed, slowed, words
from gpucheck.model.observations import Port
from gpucheck.model.verdict import Verdict

# GT/s of each generation, as lspci prints them.
GIGATRANSFERS = {1: "2.5", 2: "5", 3: "8", 4: "16", 5: "32", 6: "64"}


def judge(case: Case) -> Iterator[Diagnosis]:
    """Every link that several GPUs share, and every GPU whose path crosses the chipset."""
    yield from _uplinks(case)
    yield from _chipsets(case)


def shared_ports(m: Machine) -> list[Port]:
    """Uplinks, and bridges above more than one GPU, each once."""
    found: dict[str, Port] = {
        str(port.bus_id): port for gpu in m.seen.gpus for port in gpu.path if len(m.behind(port)) > 1
    }
    named = {port.bus_id or f"uplink {i}": port for i, port in enumerate(m.seen.uplinks)}
    return [port for port in {**found, **named}.values() if port.kind != "chipset"]


def _uplinks(case: Case) -> Iterator[Diagnosis]:
    m = case.machine
    for port in shared_ports(m):
        below = set(m.behind(port))
        crossing = [pair for pair in m.pairs if len(below & set(pair)) == 1 and not m.is_nvlink(pair)]
        rates = [rate.gb_s for pair in crossing if (rate := case.rates.p2p(pair))]
        proven = max([*rates, *_to_host(case, below)], default=0.0)
        if not (narrowed(port) or slowed(port)) or contradicted(port, proven):
            continue
        most = rate_of(port.gen or port.max_gen, port.width or port.max_width)
        agrees = bool(rates) and most is not None and proven <= most * FITS_TO
        if not narrowed(port) and not agrees and port.read != "load":
            continue
        speed = GIGATRANSFERS.get(port.gen or 0)
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.FAIL,
                "uplink-downgraded",
                "certain" if port.read == "load" else "likely",
                subject=f"link:{port.bus_id or 'uplink'}",
                seen=words(port).partition(" of ")[0],
                wanted=words(port).partition(" of ")[2],
                why=f"uplink {port.bus_id or ''} at {speed or '?'} GT/s x{port.width or '?'}: every copy of GPUs "
                f"{', '.join(map(str, sorted(below)))} to the rest of the machine is held to {most or 0:g} GB/s raw"
                + (f" ({span(rates)} GB/s measured); pairs below it are not concerned" if rates else ""),
                fix=f"lspci -vv -s {port.bus_id or '<bus id>'} | grep -e LnkCap -e LnkSta",
                evidence=[f"{words(port)}, read {port.read or 'it was not told when'}", f"across: {listed(crossing)}"],
            ),
            frozenset(crossing),
        )


def _to_host(case: Case, below: set[int]) -> list[float]:
    rows = [row for row in case.machine.measured.host_device if row.gpu in below]
    return [value for row in rows for value in (row.h2d_gb_s, row.d2h_gb_s) if value]


def _chipsets(case: Case) -> Iterator[Diagnosis]:
    m = case.machine
    for i, gpu in enumerate(m.seen.gpus):
        chipset = next((port for port in gpu.path if port.kind == "chipset"), None)
        if chipset is None:
            continue
        mine = [pair for pair in m.pairs if i in pair and not m.is_nvlink(pair)]
        rates = [rate for pair in mine if (rate := case.rates.p2p(pair))]
        others = [r.gb_s for pair, r in case.rates.all.items() if i not in pair and not m.is_nvlink(pair)]
        best = max((rate.gb_s for rate in rates), default=None)
        slow = best is not None and bool(others) and best < 0.70 * max(others)
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.FAIL if slow or any(rate.level == "bad" for rate in rates) else Verdict.WARN,
                "gpu-behind-chipset",
                "certain",
                subject=f"gpu:{m.label(i)}",
                seen=best if best is not None else "its path crosses the chipset",
                wanted=max(others) if best is not None and others else "a path to the CPU",
                why=f"this GPU hangs on the chipset's lanes ({chipset.bus_id}), which disks and network share",
                evidence=[f"path: {' > '.join(port.bus_id or '?' for port in gpu.path)}"],
            ),
            frozenset(mine),
        )


RULE = Rule(
    name="uplink-state",
    order=29,
    title="Links above the GPUs by their registers",
    looks_at="uplinks, gpus.path (kind, gen, width, max_gen, max_width, read), pairs that cross them",
    formula="width or generation below maximum, read under load or with every crossing pair <= 0.97 x its raw rate; "
    "the pairs below it are not concerned; a chipset on the path always counts",
    sources=("rtx6kpro wrx90-cpayne-2switch-flat", "club-3090#895"),
    cases=("rtx6kpro wrx90, uplink forced to generation 2",),
    judge=judge,
)
