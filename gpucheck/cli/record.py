"""Record host state to a file for offline analysis"""

import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck import __version__
from gpucheck.cli._shared.common import (
    STDOUT,
    OutputFile,
    Problem,
    note,
    open_host,
    replaces,
    seconds,
    simulation_options,
    timeout_option,
    write_result,
)
from gpucheck.cli._shared.progress import Progress, progress_end
from gpucheck.model.facts import MEASURED, Facts, Source
from gpucheck.processes.atomic import PRIVATE
from gpucheck.processes.deadline import StuckError

if TYPE_CHECKING:
    from gpucheck.host.recording import Recording
    from gpucheck.host.recording.redaction import Redaction
    from gpucheck.model.full_record import FullRecord

# What a reader of a bug report looks for although no check asks for it.
TEXTS = (
    "/etc/nccl.conf",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/version",
    "/proc/meminfo",
    "/proc/modules",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
)
GPUS = "/proc/driver/nvidia/gpus"
FOLDERS = ("/dev", "/dev/nvidia-caps", "/sys/class/infiniband", "/sys/class/iommu")
# The part of --within in which programs run: one that is ended at its limit, and redaction, take the rest.
FOR_PROGRAMS = 0.85
LIBRARIES = ("libcuda", "libcudart", "libcudnn", "libnccl", "libnvidia-ml")


@click.command()
@click.option(
    "-o", "--output", required=True, type=OutputFile(), help="Write the recording to FILE (atomically). - is stdout."
)
@click.option("--no-redact", is_flag=True, help="Do not redact names, serial numbers, UUIDs, addresses and secrets.")
@click.option(
    "--full",
    is_flag=True,
    help="Also ask every tool and every call, copy, compute and train on all GPUs: minutes of load.",
)
@click.option(
    "--within",
    type=seconds(6.0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of --full as a whole.",
)
@click.option("--yes", is_flag=True, help="Do not ask before --full.")
@timeout_option()
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    output: Path,
    no_redact: bool,
    full: bool,
    within: float,
    yes: bool,
    timeout: float,
) -> None:
    """Record the state of this host that the checks read, compressed and redacted.

    `gpucheck verify --from FILE` evaluates a recording on any host, with the same result. The host is not changed.
    Nothing is measured without --full, which runs programs for some minutes: nvidia-smi and lspci, all calls of NVML
    and CUDA that change nothing, the kernels of gpucheck with known answers, verify, all copies, matrix products and
    training. FILE is written again after each that ran: a recording that is ended holds everything until then. Only
    environment variables of CUDA, NCCL, the loader and the frameworks are recorded.

    Host and user names, IP and hardware addresses, UUIDs, serial numbers, user paths, e-mail addresses and secrets are
    redacted if their format or location identifies them. The counts are printed and stored in the recording. A name in
    prose has no format: a host, project or person that is a plain word is not detected. Review the recording before you
    publish it (gunzip -c FILE), and replace such names (gunzip -c FILE | sed s/NAME/x/g).
    """
    if output == STDOUT and sys.stdout.isatty():
        raise Problem("-o -: a recording is compressed, and stdout is a terminal. Name a file, or a pipe to read it.")
    if full:
        _confirm(within, yes=yes)
    from gpucheck.host.recording import encode, recording
    from gpucheck.host.recording.redaction import encodable, of_recording

    began = time.monotonic()
    source = open_host(None, deadline_s=timeout)
    _read_all(source)
    if full:
        from gpucheck.run.full_record import parameters

        parameters(source)
    progress_end()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kept = encodable(recording(source.read(), version=__version__, now=now))
    if left := kept.missing(name for name in Facts.__struct_fields__ if name not in MEASURED):
        note(f"not recorded, because it could not be read: {', '.join(left)}")
    mode = 0o600 if no_redact else PRIVATE
    clean = None if no_redact else of_recording(kept)
    if full:
        left_s = FOR_PROGRAMS * (within - (time.monotonic() - began))
        kept = _with_full(source, kept, clean, output, mode, left_s)
        # Again and all of it: a program may have printed a name that was not known before.
        clean = None if no_redact else of_recording(kept)
    kept = _clean(kept, clean)
    content = encode(kept)
    write_result(content, output, mode=mode)
    how = "not redacted: check it before you pass it on" if no_redact else _counted(kept.redactions)
    note(f"{output}: recorded {len(content):,} bytes, {how}. Replay it: gpucheck verify --from {output}")
    if kept.full is not None:
        _note_full(kept, kept.full, output)


def _with_full(
    source: Source, kept: "Recording", clean: "Redaction | None", output: Path, mode: int, whole_s: float
) -> "Recording":
    """Run every program, and write the file after each that ran: an end at any moment leaves what there was until then.

    clean: the redaction of kept. whole_s: for all programs. Raises Problem.
    """
    from msgspec.structs import replace

    from gpucheck.host.recording import encode
    from gpucheck.run.differences import differences
    from gpucheck.run.full_record import LATE, PROGRAMS, take

    def write() -> None:
        if replaces(output):
            write_result(encode(_clean(kept, clean)), output, mode=mode)

    programs = take(source, PROGRAMS, whole_s=whole_s)
    write()
    for number, program in enumerate(PROGRAMS, 1):
        note(f"{number} of {len(PROGRAMS)}: {program.name}, at most {program.limit_s:g} s")
        full = next(programs)
        kept = replace(kept, full=full, differences=differences(kept.gpus, full))
        ran = full.programs[-1]
        if ran.status is not None or ran.why == LATE:  # to redact a recording of eight GPUs again takes a second
            write()
    return kept


def _confirm(within: float, *, yes: bool) -> None:
    """State what --full does, and ask. Raises Problem without a yes."""
    from gpucheck.run.full_record import PROGRAMS

    what = (
        f"record --full runs {len(PROGRAMS)} programs one after the other: nvidia-smi and lspci, every reading call of "
        "NVML, then copies, matrix products and short training runs on all GPUs. GPUs that other processes compute on "
        f"are only read. Nothing is changed and nothing is sent. It takes at most {within:g} s."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise Problem(f"{what} Confirm it: --yes.")
    note(f"{what} Start? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Problem("Nothing was recorded.")


def _note_full(kept: "Recording", full: "FullRecord", output: Path) -> None:
    """What --full found, what it could not run, and where the file may go."""
    from gpucheck.model.full_record import CudaFailure

    reasons: dict[str, list[str]] = {}
    for ran in full.programs:
        if ran.why:
            reasons.setdefault(ran.why, []).append(ran.name)
    for why, names in reasons.items():
        note(f"{', '.join(names)}: {why}")
    if isinstance(full.cuda, CudaFailure):
        note(f"CUDA was not recorded: {full.cuda.why}")
        if full.cuda.fix:
            note(f"Do this: {full.cuda.fix}")
    if full.not_measured is not None:
        note(f"Copies were not recorded: {full.not_measured}")
    for one in kept.differences:
        expected = f"; expected: {one.expected}" if one.expected else ""
        note(f"not as expected: {one.subject} ({one.source}): {one.seen}{expected}")
    redacted = "" if kept.redacted else "It is not redacted: pass it on only to people who may know this host. "
    note(
        f"{redacted}Read it before you send it (gunzip -c {output} | less). Redacted, it is made for a public issue of "
        "gpucheck, or for the support of your hardware's vendor."
    )


def _clean(recording: "Recording", redaction: "Redaction | None") -> "Recording":
    """The recording with what --full added, as it is written."""
    from gpucheck.host.recording.redaction import redacted

    return recording if redaction is None else redacted(recording, redaction)


def _counted(counts: dict[str, int]) -> str:
    plural = {kind: f"{kind}es" if kind.endswith("s") else f"{kind}s" for kind in counts}
    kinds = (f"{number} {kind if number == 1 else plural[kind]}" for kind, number in counts.items())
    return f"redacted: {', '.join(kinds) or 'nothing found'}; check it before you publish it"


def _read_all(source: Source) -> None:
    """Read whatever the commands that take a recording need: each runs here once, and its result is thrown away.

    What cannot be read is not recorded. Raises what the read of the system ended with.
    """
    from gpucheck.run import verification as run

    source.read("system", "simulation")
    steps = [step for step in run.all_steps() if not step.tags & run.NEEDS_HARDWARE]
    run.verify(source, steps, progress=Progress(len(steps)))
    files = [*(f"text:{path}" for path in TEXTS), *(f"library:{name}" for name in LIBRARIES)]
    _read(source, *files, *(f"folder:{path}" for path in (*FOLDERS, GPUS)))
    folders = [f"{GPUS}/{gpu}" for gpu in source.read().folders.get(GPUS) or ()]
    _read(source, *(f"folder:{folder}" for folder in folders))
    found = source.read().folders
    _read(source, *(f"text:{folder}/{name}" for folder in folders for name in found.get(folder) or ()))


def _read(source: Source, *needs: str) -> None:
    with suppress(StuckError, OSError):
        source.read(*needs)
