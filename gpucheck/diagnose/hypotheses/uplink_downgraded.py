"""The way from a PCIe switch up to the CPU is slower than it should be."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import narrowed, slowed, words
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.paths import Pair
from gpucheck.model.diagnosis.observations import Port

PRIOR, READ = 0.03, {"load": 20.0, None: 3.0, "idle": 0.3}
PARTS = (0.5, 0.25, 0.125, 0.0625)
GIGATRANSFERS = {1: "2.5", 2: "5", 3: "8", 4: "16", 5: "32", 6: "64"}


def instances(m: Machine) -> Iterator[Instance]:
    """For each group of GPUs behind one way up: the rate that was read, else halves of its best."""
    for group in m.groups:
        ports = [port for port in m.shared_ports if frozenset(m.behind(port)) == group]
        best = m.uplink[group]
        read = next((port for port in ports if (narrowed(port) or slowed(port)) and _is_below(port, best)), None)
        if read is not None and (raw := rate_of(read.gen or read.max_gen, read.width or read.max_width)):
            yield _instance(m, group, raw, READ[read.read], read)
        complete = [p for p in ports if p.read == "load" and p.gen and p.width]
        if best and read is None and len(complete) < max(len(ports), 1) and not m.host.virtual:
            for part in PARTS:
                yield _instance(m, group, best * part, PRIOR / len(PARTS) / max(1, len(m.groups) - 1), None)


def _is_below(port: Port, best: float | None) -> bool:
    """Slower than the whole way up can be; another port of it may have a lower limit than this one."""
    raw = rate_of(port.gen or port.max_gen, port.width or port.max_width)
    return raw is None or best is None or raw < best


def crossing(m: Machine, group: frozenset[int]) -> tuple[Pair, ...]:
    """PCIe pairs with one end in the group."""
    return tuple(pair for pair in m.pairs if (pair[0] in group) != (pair[1] in group) and not m.is_nvlink(pair))


def _instance(m: Machine, group: frozenset[int], raw: float, prior: float, port: Port | None) -> Instance:
    name = next((p.bus_id for p in m.shared_ports if frozenset(m.behind(p)) == group and p.bus_id), None)
    gpus = ", ".join(map(str, sorted(group)))
    seen = words(port).partition(" of ") if port else ("", "", "")
    speed = f" at {GIGATRANSFERS.get(port.gen or 0, '?')} GT/s x{port.width or '?'}" if port else ""
    return Instance(
        cause="uplink-downgraded",
        subject=f"link:{name}" if name else "host",
        prior=prior,
        change=Change(uplinks={group: raw}),
        excludes=f"uplink {sorted(group)}",
        seen=seen[0] or f"about {raw:g} GB/s raw",
        wanted=seen[2] or f"{m.uplink[group] or 0:g} GB/s raw",
        why=f"{f'uplink {name}' if name else 'the uplink'}{speed}: every copy of GPUs {gpus} to the rest of the "
        f"machine is held to {raw:g} GB/s raw; pairs below it are not concerned",
        decide=f"lspci -vv -s {name or '<bus id of the switch port>'} | grep -e LnkCap -e LnkSta while copying",
        evidence=(f"{words(port)}, read {port.read or 'at an unknown time'}",) if port else (),
        pairs=crossing(m, group),
        direct=bool(port and port.read == "load"),
    )


HYPOTHESIS = Hypothesis(
    name="uplink-downgraded",
    causes=("uplink-downgraded",),
    title="A slow way up from a switch",
    possible_when="several GPUs share one way up (PIX, PXB or a named uplink) that was not read complete under load",
    predicts="pairs that leave the group, and its host copies, at the lower rate; pairs below the switch as usual",
    prior="3 %; 20 to 1 where it was read under load",
    never_explains="slow pairs below one switch, one slow GPU",
    sources=("rtx6kpro wrx90-cpayne-2switch-flat", "rtx6kpro pcie-bandwidth"),
    cases=("rtx6kpro wrx90, uplink forced to generation 2",),
    instances=instances,
)
