"""What gpucheck itself writes, made at the start: recordings, reports, merges, facts, locks, plans, manifests.

Recordings of simulated machines are made by the product in processes of their own.
"""

import gzip
from functools import cache

import msgspec

from gpucheck import fleet
from gpucheck.host.recording import Recording, read_recording, recording
from gpucheck.model import NvmlReading, Report
from gpucheck.model.facts import Facts
from gpucheck.model.fleet import FleetReport
from gpucheck.run import verification as run
from gpucheck.stack.lock import Lock, lock, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.spec import StackSpec
from tests.checks.judging import exactly
from tests.forked import gpucheck
from tests.fuzz.target import scratch
from tests.machines import h100, p100, whole_host
from tests.stack.hosts import host

NOW = "2026-11-21T12:00:00+00:00"
# With a fault each: what is wrong has more to say.
SIMULATED = (
    ("p100-pcie-x2", "xid:gpu=0,code=79"),
    ("rtx3090-x2-nvlink", "nvlink-down:gpu=0,link=1"),
    ("h100-nvl-x2", ""),
    ("t4-vm-x1", "driver-not-loaded"),
    ("hgx-h100-x8", "pcie-width:gpu=1,width=8"),
)
MEASURING = run.NEEDS_HARDWARE


def _same(kept: Recording) -> Recording:
    """Without what differs from run to run and from machine to machine."""
    system = msgspec.structs.replace(kept.system, hostname="node07", kernel="5.15.0-179-generic", arch="x86_64")
    return msgspec.structs.replace(kept, recorded=NOW, gpucheck="0.1.0", system=system)


class _Noting:
    """Notes what is read of a host."""

    def __init__(self, host: Facts) -> None:
        self.host = host
        self.needs: dict[str, None] = {}

    def read(self, *needs: str) -> Facts:
        self.needs |= dict.fromkeys(needs)
        return self.host


def _of_values(*gpus: object) -> Recording:
    """A healthy machine that is not simulated."""
    machine = _Noting(whole_host(*gpus))  # type: ignore[arg-type]
    run.verify(machine, [step for step in run.all_steps() if not step.tags & MEASURING])
    needs = (*machine.needs, "text:/proc/cpuinfo", "text:/proc/cmdline")
    return recording(exactly(needs, machine.host), version="0.1.0", now=NOW)


def _simulated(profile: str, fault: str) -> Recording:
    """By the product's own command."""
    kept = scratch() / f"{profile}.rec"
    gpucheck("record", "--simulate", profile, *(("--fault", fault) if fault else ()), "-o", kept).check_returncode()
    return read_recording(kept)


@cache
def _recordings() -> tuple[Recording, ...]:
    values = _of_values(p100(0), p100(1)), _of_values(h100(0), h100(1))
    return tuple(_same(kept) for kept in (*values, *(_simulated(*one) for one in SIMULATED)))


@cache
def recordings() -> tuple[bytes, ...]:
    """As JSON without their compression, which the reader takes too."""
    return tuple(msgspec.json.encode(kept) for kept in _recordings())


@cache
def packed_recordings() -> tuple[bytes, ...]:
    """As files have them."""
    return tuple(gzip.compress(content, 6, mtime=0) for content in recordings()[:4])


@cache
def readings() -> tuple[bytes, ...]:
    """NVML's answers, as the child that asks for them hands them on."""
    kept = (one.nvml for one in _recordings())
    return tuple(
        b"> nvmlInit host\n= " + msgspec.json.encode(nvml) + b"\n" for nvml in kept if isinstance(nvml, NvmlReading)
    )


@cache
def _verified() -> tuple[Report, ...]:
    """Of recorded hosts, and of two that were measured."""
    from tests.render.reports import healthy as measured
    from tests.render.reports import sick

    judged = (run.verify(kept, run.all_steps()) for kept in _recordings())
    return _told_apart((*judged, measured(), sick(4)))


def _told_apart(reports: tuple[Report, ...]) -> tuple[Report, ...]:
    """Each of a host of its own, without times."""
    return tuple(
        msgspec.structs.replace(
            one,
            host=f"node{number:02}",
            started=NOW,
            seconds=1.5,
            findings=tuple(msgspec.structs.replace(finding, seconds=0.1) for finding in one.findings),
        )
        for number, one in enumerate(reports)
    )


@cache
def verified() -> tuple[bytes, ...]:
    """verify --format json."""
    return tuple(msgspec.json.encode(one) for one in _verified())


@cache
def reports() -> tuple[bytes, ...]:
    """The same, and two hosts of a kind with numbers that can be compared."""
    from tests.fleet.reports import report

    compared = report("node01"), report("node02", pairs={"0-1": 200.0})
    return tuple(msgspec.json.encode(one) for one in _told_apart((*_verified(), *compared)))


@cache
def a_report() -> Report:
    """Of two P100, for what is compared with a report."""
    return _verified()[0]


@cache
def merged() -> FleetReport:
    """fleet report --format json."""
    rows = [row for n, content in enumerate(reports()) for row in fleet.rows_of(content, f"{n}.json")]
    return fleet.merge(rows, ["node99"])


@cache
def healthy() -> tuple[bytes, ...]:
    """Reports of good1, good2 and good3."""
    from tests.fleet.reports import encoded, report

    return tuple(encoded(*(report(f"good{n}") for n in range(1, 4))))


@cache
def merges() -> tuple[bytes, ...]:
    """Merges as --baseline reads them."""
    return (msgspec.json.encode(merged()),)


@cache
def streams() -> tuple[bytes, ...]:
    """Reports as srun, kubectl and cat print them."""
    smallest = sorted(reports(), key=len)[:3]
    content = [msgspec.json.format(one, indent=1) for one in smallest]
    tools = (b"12: ", b"[pod/gpucheck-x2x/gpucheck] ")
    labelled = [b"\n".join(tool + line for one in content for line in one.split(b"\n")) for tool in tools]
    return (*labelled, b"\n".join(smallest))


@cache
def facts() -> tuple[bytes, ...]:
    """Of one host, and of several in one file."""
    kinds = (("ubuntu-22.04", "p100-pcie-x2"), ("rocky-9", "h100-sxm5-x8"), ("debian-13", "gb200-x4"))
    hosts = [host(system, gpus, f"node{n:02}") for n, (system, gpus) in enumerate(kinds)]
    return (*(msgspec.json.encode(one) for one in hosts), msgspec.json.encode(hosts))


@cache
def _lock() -> Lock:
    return lock(
        StackSpec(), [host("ubuntu-22.04", "p100-pcie-x2", "node01"), host("rocky-9", "h100-sxm5-x8", "node02")]
    )


@cache
def locks() -> tuple[bytes, ...]:
    """stack.lock.yml."""
    return (write_lock(_lock()).encode(),)


@cache
def plans() -> tuple[bytes, ...]:
    """As the playbooks put them on hosts."""
    return tuple(msgspec.json.encode(plan(_lock(), host=name)) for name in ("node01", "node02"))


@cache
def manifests() -> tuple[bytes, ...]:
    """bundle.json."""
    from gpucheck.bundle.contents import write_manifest
    from tests.bundle.site import manifest

    return (write_manifest(manifest("lab-apt")), write_manifest(manifest("lab-apt", "lab-dnf")))
