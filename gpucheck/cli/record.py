"""Record host state to a file for offline analysis"""

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck import __version__
from gpucheck.cli._shared.common import (
    OutputFile,
    Problem,
    Progress,
    note,
    open_host,
    progress_end,
    simulation_options,
    timeout_option,
    write_result,
)
from gpucheck.cli._shared.output import STDOUT
from gpucheck.model import Host
from gpucheck.processes.atomic import PRIVATE

if TYPE_CHECKING:
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
FOLDERS = ("/dev", "/dev/nvidia-caps", "/proc/driver/nvidia/gpus", "/sys/class/infiniband", "/sys/class/iommu")
LIBRARIES = ("libcuda", "libcudart", "libcudnn", "libnccl", "libnvidia-ml")


@click.command()
@click.option(
    "-o", "--output", required=True, type=OutputFile(), help="Write the recording to FILE (atomically). - is stdout."
)
@click.option("--no-redact", is_flag=True, help="Do not redact names, serial numbers, UUIDs, addresses and secrets.")
@click.option(
    "--full",
    is_flag=True,
    help="Also read the CUDA driver, and copy between all GPUs with every method: the GPUs must be idle.",
)
@timeout_option
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    output: Path,
    no_redact: bool,
    full: bool,
    timeout: float,
    profile: str | None,
    faults: tuple[str, ...],
) -> None:
    """Record the state of this host that the checks read, compressed and redacted.

    `gpucheck verify --from FILE` evaluates a recording on any host, with the same result. The host is not changed.
    Nothing is measured without --full, which records CUDA's attributes and peer access, the parameters of the kernel
    modules, and the timings of all copies. Only environment variables of CUDA, NCCL, the loader and the frameworks are
    recorded.

    Host and user names, IP and hardware addresses, UUIDs, serial numbers, user paths, e-mail addresses and secrets are
    redacted if their format or location identifies them. The counts are printed and stored in the recording. A name in
    prose has no format: a host, project or person that is a plain word is not detected. Review the recording before you
    publish it (gunzip -c FILE), and replace such names (gunzip -c FILE | sed s/NAME/x/g).
    """
    if output == STDOUT and sys.stdout.isatty():
        raise Problem("-o -: a recording is compressed, and stdout is a terminal. Name a file, or a pipe to read it.")
    from gpucheck.host.recording import RecordingHost
    from gpucheck.host.recording.file import encode
    from gpucheck.host.recording.redaction import encodable, redacted

    host = RecordingHost(open_host(profile, faults, None, deadline_s=timeout))
    taken = _query_all(host, full=full)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kept = encodable(host.recording(version=__version__, now=now, full=taken))
    if not no_redact:
        kept = redacted(kept)
    content = encode(kept)
    write_result(content, output, mode=0o600 if no_redact else PRIVATE)
    progress_end()
    how = "not redacted: check it before you pass it on" if no_redact else _counted(kept.redactions)
    if taken is not None:
        _note_missing(taken)
    note(f"{output}: recorded {len(content):,} bytes, {how}. Replay it: gpucheck verify --from {output}")


def _note_missing(full: "FullRecord") -> None:
    """What of --full this host does not have."""
    from gpucheck.model.full_record import CudaFailure

    if isinstance(full.cuda, CudaFailure):
        note(f"CUDA was not recorded: {full.cuda.why}{'. Do this: ' if full.cuda.fix else ''}{full.cuda.fix}")
    if full.not_measured is not None:
        note(f"Copies were not recorded: {full.not_measured}")


def _counted(counts: dict[str, int]) -> str:
    """What was replaced, by kind."""
    kinds = (f"{number} {_plural(kind) if number != 1 else kind}" for kind, number in counts.items())
    return f"redacted: {', '.join(kinds) or 'nothing found'}; check it before you publish it"


def _plural(kind: str) -> str:
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def _query_all(host: Host, *, full: bool) -> "FullRecord | None":
    """Whatever the commands that replay will ask: each of them asks here once, and its answer is thrown away."""
    from gpucheck import run
    from gpucheck.run.full_record import PARTS, take
    from gpucheck.run.topology import examine

    steps = [step for step in run.all_steps() if not step.tags & run.NEEDS_HARDWARE]
    progress = Progress(len(steps) + len(PARTS) * full)
    run.verify(host, steps, progress=progress)
    examine(host)
    for path in TEXTS:
        host.read_text(path)
    for path in FOLDERS:
        host.list_names(path)
    host.loader_libraries(LIBRARIES)
    return take(host, progress) if full else None
