"""All-reduce of two GPUs through exactly one network card: NCCL without any other way between the two.

Both ranks send through the card, so each gets half of it. What NCCL logs decides whether a number is believed: which
card it opened, that every channel crosses it, and which of them reach GPU memory.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpucheck.measure.planning.selection import Unmeasurable, admit
from gpucheck.model import Gpu
from gpucheck.model.diagnosis.observations import NicResult
from gpucheck.model.network import REDUCED, NicMeasurement
from gpucheck.processes.ranks.nccl_log import Taken, parse
from gpucheck.topology.nics import expected

if TYPE_CHECKING:
    from gpucheck.measure.network import Nic

RANKS, BYTES = 2, 256 << 20
REQUIRED = "torch"
THROUGH = "NET/IB"
# The network is then the only way between two ranks of one host.
SETTINGS = {
    "NCCL_NET": "IB",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
}
ROUND_S = 30.0


class Reduced(NamedTuple):
    """One run. gb_s: bus bandwidth, which of two ranks is what each sends. wrong: elements."""

    gb_s: float
    taken: Taken
    wrong: int = 0


Run = Callable[["Nic", tuple[str, str]], Reduced | str]
"""Of GPUs by bus id, the first near the card: a result, or why there is none."""


def lacking(gpus: tuple[Gpu, ...], *, simulated: bool, contended: bool) -> tuple[str, str] | None:
    """Return a code and the reason why nothing can be run on these GPUs; None if it can."""
    if not simulated and find_spec(REQUIRED) is None:
        return "nic.no-nccl", f"Python package {REQUIRED} is not installed"
    if len(gpus) < RANKS:
        return "nic.nccl-needs-two-gpus", f"{len(gpus)} GPUs"
    try:
        admit(gpus, contended=contended)
    except Unmeasurable as error:
        return "nic.nccl-needs-free-gpus", str(error.finding.seen)
    return None


def measured(nic: "Nic", bus_ids: tuple[str, str]) -> Reduced | str:
    """Run two ranks. Raises OSError if no process can be started, and what a signal raises."""
    from gpucheck.measure.collectives.rank import RankOptions
    from gpucheck.measure.collectives.run import launch, output_of, reports_of
    from gpucheck.measure.values import spread

    options = RankOptions(
        backend="nccl", operations=(REDUCED,), sizes=(BYTES,), bus_ids=bus_ids, iterations=5, timeout_s=ROUND_S
    )
    environment: dict[str, Any] = SETTINGS | {"NCCL_IB_HCA": f"={nic.seen.name}:{nic.port.number}"}
    ended = launch(options, RANKS, **environment)
    if ended.signal is not None:
        raise ended.signal
    found = [one for report in reports_of(ended)[:1] for one in report.measured]
    if not found or ended.reason != "finished":
        errors = [end.error.message for end in ended.ranks if end.error is not None]
        reasons = (*errors, *ended.taken.warnings, output_of(ended), f"no end within {ended.seconds:.0f} s")
        return next(filter(None, reasons))
    return Reduced(found[0].size / spread(found[0].seconds).median / 1e9, ended.taken, found[0].wrong)


def simulated(parts: dict[str, float], *, direct: frozenset[str]) -> Run:
    """Return what a simulated machine has in the place of NCCL: a rate, and the lines of NCCL's log."""

    def run(nic: "Nic", bus_ids: tuple[str, str]) -> Reduced:  # noqa: ARG001 - the same signature
        name = nic.seen.name
        lines = [f"NCCL INFO NET/IB : Using [0]{name}:{nic.port.number}/IB [RO]; OOB lo:127.0.0.1<0>"]
        lines += [f"NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via {THROUGH}/0{'/GDRDMA' * (name in direct)}"]
        lines += [f"NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via {THROUGH}/0"]
        return Reduced(0.9 * parts.get(name, 1.0) * limit_of(nic)[0], parse("\n".join(lines)))

    return run


def through(nic: "Nic", gpus: tuple[Gpu, ...], run: Run, *, virtual: bool) -> NicMeasurement:
    """Return the row of a card; a value only if NCCL's log shows this card, and no other way."""
    name, near = nic.seen.name, nic.gpu.bus_id if nic.gpu is not None else None
    order = sorted(gpus, key=lambda gpu: (gpu.pci_bus_id != near, gpu.numa_node != nic.seen.numa_node, gpu.index))
    first, second = (gpu.pci_bus_id for gpu in order[:RANKS])
    limit, basis = limit_of(nic, virtual=virtual)
    row = NicMeasurement(client=name, server=name, operation=REDUCED, gpu=first, basis=basis)
    row = msgspec.structs.replace(row, expected_gb_s=round(limit, 2) if basis else None)
    outcome = run(nic, (first, second))
    if isinstance(outcome, str):
        return msgspec.structs.replace(row, note=outcome)
    taken = outcome.taken
    if {*taken.cards} != {name} or {*taken.transports} != {THROUGH}:
        ways, cards = ", ".join(taken.transports) or "no channel", ", ".join(taken.cards) or "no card"
        return msgspec.structs.replace(row, note=f"its log shows {cards}, and {ways}")
    memory = "gpudirect" if 0 in taken.direct else "host"
    return msgspec.structs.replace(row, value=round(outcome.gb_s, 3), memory=memory, wrong=outcome.wrong)


def limit_of(nic: "Nic", *, virtual: bool = False) -> tuple[float, str]:
    """Each of two ranks has half of the card, and its data crosses the links to host memory; empty if not known."""
    limit = expected((nic.seen,), NicResult(nics=(0, 0), value=0.0), virtual=virtual)
    return (0.0, "") if limit is None else (limit.gb_s / 2, f"half of {limit.basis}")
