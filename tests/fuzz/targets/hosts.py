"""What comes from a host: recordings, reports, NVML's answers, plans."""

from functools import cache

import msgspec

from gpucheck.host.recording import decode
from gpucheck.model import NvmlReading, Report
from gpucheck.run import verification as run
from gpucheck.run.report import with_findings
from tests.fuzz.oracles import Wrong, no_defect, refusing, shown_diagnosis, shown_report, shown_topology
from tests.fuzz.seeds import own
from tests.fuzz.target import target


@cache
def _steps() -> tuple[run.RunStep, ...]:
    return run.select(run.all_steps(), level="full", only=(), skip=())


@target(seeds=own.recordings, format="json")
def recording(data: bytes) -> None:
    """verify --from: judged by every check, in every format."""
    with refusing():
        kept = decode(data, "host.rec")
        report = run.verify(kept, _steps())
        if kept.simulation is not None and not report.simulated:
            raise Wrong("a report of simulated hardware that is not marked")
        shown_report(report)


@target(seeds=own.packed_recordings, format="json.gz")
def packed_recording(data: bytes) -> None:
    """The file itself."""
    with refusing():
        decode(data, "host.rec")


@target(seeds=own.recordings, format="json")
def recorded_topology(data: bytes) -> None:
    """topo --from and what stack reads of a recording."""
    from gpucheck.run.topology import examine
    from gpucheck.stack.facts import facts_of

    with refusing():
        host = decode(data, "host.rec")
        facts_of(host)
        topology = examine(host)
        no_defect(topology.findings)
        shown_topology(topology)


@target(seeds=own.verified, format="values")
def report(data: bytes) -> None:
    """A report of verify's, with the texts and numbers of a hostile host, in every format."""
    try:
        found = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    shown_report(with_findings(found, found.findings))


@target(seeds=own.reports, format="json")
def baseline(data: bytes) -> None:
    """verify --baseline."""
    from gpucheck import comparison

    try:
        before = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    shown_diagnosis(tuple(comparison.compare(before, own.a_report())))
    shown_diagnosis(tuple(comparison.compare(own.a_report(), before)))


@target(seeds=own.readings, format="text")
def nvml_child(data: bytes) -> None:
    """What the child process that asks NVML writes, and the topology of it."""
    from gpucheck.host.nvml.supervisor import _decode, _Transcript
    from gpucheck.topology import build

    seen = _Transcript()
    for line in data.split(b"\n")[:-1]:
        seen.take(line)
    answer = _decode(seen)
    if isinstance(answer, NvmlReading) and len(answer.gpus) <= 16:
        shown_topology(build(answer, (), simulated=False))


@target(seeds=own.plans, format="json")
def plan(data: bytes) -> None:
    """The plan that provisioning left on a host, and its readers there."""
    from gpucheck.checks.software import stack
    from tests.fakes import facts
    from tests.fuzz.target import file
    from tests.machines import LOADED, on_bus, p100
    from tests.playbooks.modules import shared

    text = data.decode(errors="replace")
    host = facts(pci=on_bus(p100(0), p100(1)), driver=LOADED)
    tuple(stack.more(host, text))
    shown_diagnosis(tuple(stack.evaluate(host, plan=text, where="stack.json")))
    shared("place").stored(str(file(data, "stack.json")))


@target(seeds=own.manifests, format="json")
def manifest(data: bytes) -> None:
    """bundle.json."""
    from gpucheck.bundle.contents import read_manifest

    with refusing():
        read_manifest(data, "bundle.json")
