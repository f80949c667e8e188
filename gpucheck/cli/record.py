"""Keep everything this host answers in one file, to be judged again elsewhere: verify, topo, stack --from FILE."""

import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import click

from gpucheck.cli._common import (
    OutputFile,
    Problem,
    open_host,
    progress,
    progress_end,
    simulation_options,
    write_result,
)
from gpucheck.cli._output import STDOUT
from gpucheck.model import Host
from gpucheck.processes.atomic import PRIVATE

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
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=OutputFile(),
    help="Write this file; it appears complete or not at all. - is stdout.",
)
@click.option(
    "--no-redact", is_flag=True, help="Keep host names, serial numbers, UUIDs, addresses and home folders readable."
)
@click.option("--timeout", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Seconds NVML may take.")
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    output: Path, no_redact: bool, timeout: float, profile: str | None, faults: tuple[str, ...]
) -> None:
    """Record what this host answers to every check, compressed and with what identifies it hashed.

    A recording is a bug report that others can look into: `gpucheck verify --from FILE` judges it anywhere and comes to
    the same report. Nothing is measured and nothing on the host is changed. Of the environment only variables that
    steer CUDA, NCCL, the loader and the frameworks are kept, and no secret among them.
    """
    if output == STDOUT and sys.stdout.isatty():
        raise Problem("-o -: a recording is compressed, and stdout is a terminal. Name a file, or a pipe to read it.")
    from gpucheck.host.recording import RecordingHost
    from gpucheck.host.recording_file import encode
    from gpucheck.host.redaction import encodable, redacted

    host = RecordingHost(open_host(profile, faults, None, deadline_s=timeout))
    _ask_everything(host)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kept = encodable(host.recording(version=version("gpucheck"), now=now))
    content = encode(kept if no_redact else redacted(kept))
    write_result(content, output, mode=0o600 if no_redact else PRIVATE)
    progress_end()
    how = "not redacted: look at it before you give it away" if no_redact else "redacted"
    click.echo(f"{output}: recorded {len(content):,} bytes, {how}. Judge it: gpucheck verify --from {output}", err=True)


def _ask_everything(host: Host) -> None:
    """Whatever the commands that replay will ask: each of them asks here once, and its answer is thrown away."""
    from gpucheck import run
    from gpucheck.cli import topo

    run.verify(host, [step for step in run.all_steps() if not step.tags & run.NEEDS_HARDWARE], progress=progress)
    topo.look(host)
    for path in TEXTS:
        host.read_text(path)
    for path in FOLDERS:
        host.list_names(path)
    host.loader_libraries(LIBRARIES)
