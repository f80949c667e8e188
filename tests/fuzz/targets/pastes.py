"""What people paste: recognised, and each kind forced."""

from collections import Counter

from gpucheck import imports
from gpucheck.diagnose import diagnose
from gpucheck.imports._text import decode, lines_of
from gpucheck.model import KernelLog, Topology
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.run.pastes import diagnosis
from gpucheck.run.pastes.merge import merge
from gpucheck.topology import infer_wiring, with_advice, with_expectations
from tests.fuzz.oracles import refusing, shown_diagnosis, shown_topology
from tests.fuzz.seeds import attacks, pastes
from tests.fuzz.target import Function, target
from tests.imports import logs


@target(seeds=pastes.topologies, format="text", attacks=attacks.pastes)
def topology(data: bytes) -> None:
    """topo --import."""
    with refusing():
        _judged(imports.read(data))


@target(seeds=pastes.measurements, format="text", attacks=attacks.pastes)
def measurements(data: bytes) -> None:
    """Numbers of benchmarks, each part by itself."""
    with refusing(ValueError):
        # Each by itself, where the command evaluates all of them once: a few, or time would count the parts.
        for part in imports.read_all(data, "paste.txt").parts[:4]:
            shown_diagnosis(diagnose(merge(Observations(), part.facts.observed)[0]))


@target(seeds=pastes.kernel_logs, format="text", attacks=attacks.pastes)
def pasted_kernel_log(data: bytes) -> None:
    """A kernel log."""
    with refusing():
        _logged(logs.read(data))


@target(seeds=pastes.kernel_messages, format="text")
def kernel_ring(data: bytes) -> None:
    """What the host's own kernel log holds: any user's process can have its name in it."""
    from gpucheck.host.kernel_log import journal_lines, kmsg_lines

    text = data.decode(errors="replace")
    for lines in (kmsg_lines(text)[1], journal_lines(text)):
        _logged(KernelLog(lines=lines, source="/dev/kmsg"))


def _judged(found: Topology) -> None:
    found = with_expectations(infer_wiring(found))
    shown_topology(with_advice(found) if found.gpus else found)


def _logged(log: KernelLog) -> None:
    from gpucheck.checks.kernel import log as check

    shown_diagnosis(tuple(check.of_log(log)))


def _forced(kind: imports.Kind) -> Function:
    def run(data: bytes) -> None:
        with refusing():
            part = kind.parse(lines_of(decode(data)))
            if part is not None and part.topology is not None:
                _judged(part.topology)

    return run


@target(seeds=pastes.mixed, format="text", attacks=attacks.pastes)
def diagnose_pasted(data: bytes) -> None:
    """diagnose FILE: everything in a text, and the whole answer."""
    with refusing():
        found = diagnosis([imports.read_all(data, "paste.txt")], sources=("paste.txt",))
        shown_diagnosis(found.findings)


# Several kinds may share a name: a tool's text and its JSON.
_count: Counter[str] = Counter()
for _kind in imports.all_kinds():
    _count[_kind.name] += 1
    _name = f"import-{_kind.name}" + (f"-{_count[_kind.name]}" if _count[_kind.name] > 1 else "")
    _seeds = pastes.xml if "<system" in _kind.hints else pastes.everything
    target(name=_name, seeds=_seeds, format="text", attacks=attacks.pastes)(_forced(_kind))
