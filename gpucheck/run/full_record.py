"""What ``gpucheck record --full`` adds to a recording: programs that run one after the other, each with its own limit.

Whatever a program does, its output until then is kept and the next one starts. ``python -m gpucheck.run.full_record``
with the name of a part is one of these programs: it prints each result of copies and of computing as it arises, and
what NCCL logs while it trains. Only the output of the copies is evaluated.
"""

import os
import runpy
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.copies import Copied
from gpucheck.model.facts import Source
from gpucheck.model.full_record import CopyTiming, CudaFailure, CudaReading, FullRecord, Ran
from gpucheck.processes.capture import completed
from gpucheck.processes.signals import signal_name

if TYPE_CHECKING:
    from gpucheck.compute.values import Answer as ComputeAnswer
    from gpucheck.compute.values import ComputeStep, Failure
    from gpucheck.measure.values import Answer, CopyStep, Timing

MODULES = "/sys/module"
DRIVER_MODULES = ("nvidia", "nvidia_drm", "nvidia_fs", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")
CUDA_S = 60.0  # contexts on eight GPUs, and compiling the kernels on the first run
MOST_OUTPUT = 8 << 20  # bytes of one program; NVML's answers about eight GPUs are 1.4 MB
WHOLE_S = 120.0  # all programs together, unless the caller wants more
OVER = "not run: the time of --full was over. More: --within"
AFTER_STUCK_S = 5.0  # as for checks: what waits for the same driver must not take its own limit each time
NVML_S = 20.0
MOST_ERRORS = 1 << 20  # where NCCL's log of eight ranks is
LATE = "not at its end within its limit"
AGAIN = "gpucheck verify --only driver; dmesg | grep -e NVRM -e Xid"
CUT = "the recording was ended before this was measured"
COPIES, READ_CUDA = "copies", "cuda"
COMPUTE, TRAIN = "compute", "train"
REFUSED = 64  # the status of a command that these GPUs or this host cannot run
EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


class Program(NamedTuple):
    """command: a program of the host, or ``-m`` and a module of gpucheck. heavy: it copies, computes or trains."""

    name: str
    limit_s: float
    command: tuple[str, ...]
    heavy: bool = False


def _host(name: str, *words: str, limit_s: float = 20.0, heavy: bool = False) -> Program:
    return Program(" ".join((name, *words)), limit_s, (name, *words), heavy)


def _own(name: str, limit_s: float, *words: str, heavy: bool = False) -> Program:
    return Program(name, limit_s, ("-m", "gpucheck", *words), heavy)


def _part(name: str, limit_s: float, *words: str) -> Program:
    return Program(name, limit_s, ("-m", "gpucheck.run.full_record", *words), heavy=True)


def _train(name: str, *words: str) -> Program:
    return _part(f"{TRAIN}: {name}", 75, TRAIN, "smoke", *words, "--timeout", "60", "--format", "json")


# What is lost last comes first: what the tools print, then every call of the driver, then the kernels, then numbers.
PROGRAMS = (
    _host("nvidia-smi", "-q"),
    _host("nvidia-smi", "-q", "-x"),
    _host("nvidia-smi", "topo", "-m"),
    *(_host("nvidia-smi", "topo", "-p2p", what) for what in "rwnap"),
    *(_host("nvidia-smi", "nvlink", what) for what in ("-s", "-e", "-c")),
    _host("nvidia-smi", "c2c", "-s"),
    _host("lspci", "-vvv"),
    _host("numactl", "-H"),
    _host("ldconfig", "-p"),
    Program("every NVML call", 45, ("-m", "gpucheck.host.nvml.every")),
    Program(READ_CUDA, CUDA_S, ("-m", "gpucheck.measure.engines.driver.reading")),
    Program("kernels and ways to time", 60, ("-m", "gpucheck.measure.engines.driver.trial"), heavy=True),
    _own("verify, level quick", 45, "verify", "--level", "quick", "--format", "json"),
    _part(COPIES, 120, COPIES),
    _host("nvbandwidth", "-j", limit_s=90, heavy=True),
    _host("p2pBandwidthLatencyTest", limit_s=60, heavy=True),
    _part(COMPUTE, 90, COMPUTE),
    _train("torch ddp", "--framework", "torch", "--strategy", "ddp"),
    _train("torch fsdp", "--framework", "torch", "--strategy", "fsdp"),
    _train("torch ddp, gpt, bf16", "--framework", "torch", "--model", "gpt", "--precision", "bf16"),
    _train("torch ddp, cnn", "--framework", "torch", "--model", "cnn"),
    _train("cupy", "--framework", "cupy"),
    _train("tensorflow", "--framework", "tensorflow"),
    _own("verify", 180, "verify", "--format", "json", heavy=True),
)


def parameters(source: Source) -> None:
    """Read the parameters of the driver's kernel modules."""
    folders = [f"{MODULES}/{module}/parameters" for module in DRIVER_MODULES]
    found = source.read(*(f"folder:{folder}" for folder in folders)).folders
    source.read(*(f"text:{folder}/{name}" for folder in folders for name in found[folder] or ()))


def take(source: Source, programs: tuple[Program, ...] = PROGRAMS, *, whole_s: float = WHOLE_S) -> Iterator[FullRecord]:
    """Yield what there is after each program, the last time with ``complete``.

    whole_s: for all of them. What does not fit in is not run, or has less time, and its row states that.
    """
    end = time.monotonic() + whole_s
    full = FullRecord(
        cuda=CudaFailure(why=CUT), bandwidth=None, not_measured=CUT, timings=(), seconds={}, complete=False
    )
    busy, simulated = in_use(source), source.read("simulation").simulation is not None
    for number, program in enumerate(programs, 1):
        foreign = simulated and program.command[0] != "-m"
        why = "not run: the GPUs are simulated, and this program is not" if foreign else busy if program.heavy else None
        late = any(ran.why == LATE for ran in full.programs)
        limit_s = min(program.limit_s, AFTER_STUCK_S) if late and not program.heavy else program.limit_s
        limit_s = min(limit_s, round(end - time.monotonic(), 1))
        if limit_s <= 0:
            why, limit_s = OVER, program.limit_s
        full = replace(_after(full, program, limit_s, why), complete=number == len(programs))
        yield full


def in_use(source: Source) -> str | None:
    """Why nothing may be measured here: processes that compute on the GPUs. None if there are none."""
    gpus = source.read("nvml").gpus
    used = {gpu.index: [one for one in gpu.health.processes or () if one.kind == "compute"] for gpu in gpus}
    named = [
        f"GPU {index} by process {', '.join(str(one.pid) for one in found)}" for index, found in used.items() if found
    ]
    return f"not run: GPUs are in use, {'; '.join(named)}" if named else None


def _after(full: FullRecord, program: Program, limit_s: float, why: str | None) -> FullRecord:
    clock = time.monotonic()
    ran = _ran(program, limit_s) if why is None else _not_run(program, limit_s, why)
    if program.name == READ_CUDA and not ran.skipped:
        full, ran = replace(full, cuda=_cuda(ran)), replace(ran, output="")
    if program.name == COPIES:
        full, ran = _with_copies(full, ran), replace(ran, output="")
    seconds = round(time.monotonic() - clock, 3)
    ran = replace(ran, seconds=seconds)
    return replace(full, programs=(*full.programs, ran), seconds={**full.seconds, program.name: seconds})


def _not_run(program: Program, limit_s: float, why: str) -> Ran:
    return Ran(name=program.name, command=program.command, limit_s=limit_s, why=why, skipped=True)


def _ran(program: Program, limit_s: float) -> Ran:
    words = program.command
    if words[0] != "-m":
        # ldconfig is not in the PATH of users other than root.
        found = shutil.which(words[0]) or shutil.which(words[0], path="/usr/sbin:/sbin")
        if found is None:
            return _not_run(program, limit_s, f"not run: {words[0]} is not installed")
        words = ("-c", EXEC, found, *words[1:])
    try:
        done = completed([sys.executable, *words], limit_s)
    except OSError as error:
        return replace(_not_run(program, limit_s, f"it did not start: {error.strerror}"), skipped=False)
    killed = done.status is not None and done.status < 0
    why = LATE if done.status is None else f"ended by {signal_name(-(done.status or 0))}" if killed else None
    refused = words[0] == "-m" and done.status == REFUSED
    if refused:  # such as bf16 on GPUs without it
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
        why = f"not run: {last.removeprefix('Error: ')}"
    return Ran(
        name=program.name,
        command=program.command,
        limit_s=limit_s,
        status=done.status,
        why=why,
        skipped=refused,
        output=done.stdout[:MOST_OUTPUT].decode("utf-8", "replace"),
        errors=done.stderr[-MOST_ERRORS:].decode("utf-8", "replace"),
    )


def _cuda(ran: Ran) -> CudaReading | CudaFailure:
    try:
        return msgspec.json.decode(ran.output, type=CudaReading | CudaFailure)
    except msgspec.MsgspecError as error:
        how = ran.why or (ran.errors.splitlines() or [f"its output is invalid: {error}"])[-1]
        return CudaFailure(why=f"the process that read CUDA: {how}", fix=AGAIN)


class _Copies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    timings: tuple[CopyTiming, ...] = ()
    bandwidth: BandwidthReport | None = None
    copied: Copied | None = None
    why: str | None = None


def _with_copies(full: FullRecord, ran: Ran) -> FullRecord:
    """What the program measured until it ended: each step is a line, the report the last one."""
    why = ran.why or f"the program that copies ended with status {ran.status}: {(ran.errors.splitlines() or [''])[-1]}"
    full = replace(full, not_measured=why)
    for line in ran.output.splitlines():
        try:
            one = msgspec.json.decode(line, type=_Copies)
        except msgspec.MsgspecError:
            continue  # the last line of a program that was killed while it wrote
        full = replace(full, timings=(*full.timings, *one.timings))
        if one.bandwidth is not None or one.why is not None:
            full = replace(full, bandwidth=one.bandwidth, copied=one.copied, not_measured=one.why)
    return full


def main() -> None:
    """Run one part, and print each of its results as it arises."""
    part, *words = sys.argv[1:]
    parts: dict[str, Callable[[], None]] = {COPIES: copies, COMPUTE: compute, TRAIN: partial(train, words)}
    parts[part]()


def train(words: list[str]) -> None:
    """Run gpucheck with these words, and NCCL's log on stderr."""
    from gpucheck.processes.ranks.nccl_log import SHOW

    os.environ[SHOW], sys.argv = "1", ["gpucheck", *words]
    runpy.run_module("gpucheck", run_name="__main__")


def compute() -> None:
    """Compute; a line is a step with rates, and with clocks, power, heat and throttle reasons ten times a second.

    The last line is the report.
    """
    from gpucheck.compute.measure import ComputeOptions
    from gpucheck.host import live_source
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.measure.values import Watch
    from gpucheck.run.steps.compute import compute as computed

    def answered(step: "ComputeStep", answers: "Mapping[int, ComputeAnswer | Failure]") -> None:
        print(msgspec.json.encode({"step": step, "answers": answers}).decode(), flush=True)

    try:
        report = computed(live_source(isolated=True, deadline_s=NVML_S), ComputeOptions(), Watch(answered=answered))
    except Unmeasurable as error:
        raise SystemExit(str(error)) from error
    print(msgspec.json.encode(report).decode(), flush=True)


def copies() -> None:
    """Measure at level full, and print each step when it has ended. What reads the recording evaluates it."""
    from gpucheck.diagnose import doubtful
    from gpucheck.host import live_source
    from gpucheck.measure.bandwidth import BandwidthOptions, measure
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.measure.values import Watch

    def show(one: _Copies) -> None:
        print(msgspec.json.encode(one).decode(), flush=True)

    def answered(step: "CopyStep", answer: "Answer") -> None:
        together = len(answer.timings)
        show(_Copies(timings=tuple(_timing(step.purpose, together, timing) for timing in answer.timings)))

    def ended(report: BandwidthReport, copied: Copied) -> BandwidthReport:
        show(_Copies(bandwidth=report, copied=copied))
        return report

    try:
        source = live_source(isolated=True, deadline_s=NVML_S)
        measure(source, BandwidthOptions(depth="full"), Watch(answered=answered), doubtful, ended)
    except Unmeasurable as error:
        show(_Copies(why=str(error)))


def _timing(purpose: str, together: int, timing: "Timing") -> CopyTiming:
    values = asdict(timing)
    return CopyTiming(purpose=purpose, together=together, **asdict(values.pop("flow")), **values)


if __name__ == "__main__":
    main()
