"""fleet simulate: a directory of reports as a real fleet writes them, with ground truth."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpucheck.cli._shared.common import note
from gpucheck.cli._shared.output import Problem, not_written, usage_errors
from gpucheck.cli._shared.progress import steps
from gpucheck.model import Report
from gpucheck.processes.atomic import write_atomic
from gpucheck.processes.python import python_module

# A run takes 3 s at most on a host with nothing else to do; a fault that hangs a call waits for its own deadline.
DEADLINE = 300
PARTS = ("--level", "standard", "--skip", "training,p2p,collectives")


def simulate(
    hosts: int, profile: str, faults: Iterable[str], output: Path, seed: int, noise: float, samples: int
) -> None:
    """Write OUTPUT/HOST.json, labels.csv and ground-truth.csv. Raises Problem."""
    from gpucheck.fleet import simulated
    from gpucheck.fleet.drawn import Noise

    with usage_errors(ValueError):
        parsed = [simulated.parse_fault(words) for words in faults]
        fleet = simulated.plan(hosts, parsed, seed)
    _empty(output)
    kinds = dict.fromkeys(host.fault.machine if host.fault else None for host in fleet)
    templates = {}
    with steps(len(kinds), "machine") as progress:
        for fault in kinds:
            progress(f"{profile} {fault or ''}".strip())
            templates[fault] = _template(profile, fault)
    try:
        written = simulated.reports(fleet, templates, Noise(noise / 100, samples))
        with steps(len(fleet), "report") as progress:
            for report in written:
                progress(report.host)
                write_atomic(output / f"{report.host}.json", msgspec.json.encode(report), durable=False)
        labels = "host,rack\n" + "".join(f"{h.name},{h.rack}\n" for h in fleet)
        write_atomic(output / "labels.csv", labels.encode())
        write_atomic(output / "ground-truth.csv", simulated.truth(fleet).encode())
    except OSError as error:
        raise not_written(output, error) from error
    faulty = sum(host.fault is not None for host in fleet)
    note(f"gpucheck: SIMULATED fleet of {hosts} x {profile}, {faulty} faulty: {output}")


def _empty(output: Path) -> None:
    """Reports of two fleets in one directory would be merged into one."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise Problem(f"{output}: exists and is not an empty directory. Choose another with -o, or remove it.")


def _template(profile: str, fault: str | None) -> Report:
    """One real run on the simulated host, in a process of its own: a process can only be one machine.

    What would take real time between processes of this host is drawn.
    """
    more = ["--fault", fault] if fault else []
    words = ["verify", "--simulate", profile, *more, *PARTS, "--format", "json"]
    what = f"gpucheck {' '.join(words)}"
    try:
        done = subprocess.run([*python_module("gpucheck"), *words], capture_output=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired as error:
        late = f"{what}: no report within {DEADLINE} s. This host is busy: end other work, then try again."
        raise Problem(late) from error
    try:
        return msgspec.json.decode(done.stdout, type=Report)
    except (msgspec.DecodeError, ValueError) as error:
        message = done.stderr.decode("utf-8", "replace").strip().removeprefix("Error: ")
        raise Problem(message or f"{what}: gave no report, exit status {done.returncode}.") from error
