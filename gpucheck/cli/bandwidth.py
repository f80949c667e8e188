"""Measure GPU copy bandwidth, latency and data integrity"""

import re
from typing import Any

import click

from gpucheck.cli._shared.common import Problem, fail_on_option, level_option, output_options, simulation_options
from gpucheck.cli._shared.progress import Progress
from gpucheck.cli._shared.shown import FORMATS, reported

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST_SIZE, MOST_SIZE = 8, 1 << 34
FLOAT32 = 4
SWEEP = "4K,16K,64K,256K,1M,4M,16M,64M,256M"


@click.command()
@click.option(
    "--devices",
    metavar="0,1|UUIDs|cpu,cpu",
    help="Measure only these GPUs, in this order. 0,0 copies within GPU 0, cpu,cpu between two CPU processes.",
)
@click.option(
    "--sizes", metavar="LIST", help=f"Also measure sizes (4K,1M) on one pair of each path class. all: {SWEEP}."
)
@click.option(
    "--tensor", metavar="RxC", help="Copy only a float32 tensor of this shape, in both directions (10000x10000)."
)
@click.option("--allow-busy-gpus", is_flag=True, help="Measure GPUs in use. Low bandwidth is then at most WARN.")
@level_option(". quick: integrity and one direction. full: every copy method and staged copies.")
@fail_on_option
@click.option("-v", "--verbose", is_flag=True, help="Show the method.")
@output_options(*FORMATS)
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    devices: str | None, sizes: str | None, tensor: str | None, allow_busy_gpus: bool, level: str, **shown: Any
) -> int:
    """Measure data integrity, bandwidth and latency of every GPU pair against expected values.

    Data integrity is checked before bandwidth is measured. Without a GPU: --simulate hgx-h100-x8, or --devices cpu,cpu.
    """
    swept, tensor_bytes = parse_sizes(sizes), parse_tensor(tensor)
    from gpucheck.measure.bandwidth import BandwidthOptions
    from gpucheck.measure.values import Watch
    from gpucheck.render.subjects.copies import document
    from gpucheck.run.links import bandwidth

    options = BandwidthOptions(
        devices=devices,
        depth="default" if level == "standard" else level,  # type: ignore[arg-type]
        sizes=swept,
        tensor_bytes=tensor_bytes,
        contended=allow_busy_gpus,
    )
    return reported(
        lambda host, progress, keep: bandwidth(host, options, Watch(progress, progress.note, keep=keep)),
        document,
        Progress(0, "step"),
        every_gpu=devices is None,
        **shown,
    )


def parse_sizes(words: str | None) -> tuple[int, ...]:
    """``4K,1M`` in bytes, smallest first. Raises Problem."""
    if words is None:
        return ()
    found = set()
    for word in (SWEEP if words == "all" else words).split(","):
        match = re.fullmatch(r"([1-9][0-9]{0,11})([KMG]?)(i?B)?", word.strip(), re.IGNORECASE)
        size = int(match[1]) * UNITS[match[2].upper()] if match else 0
        if not LEAST_SIZE <= size <= MOST_SIZE:
            raise Problem(
                f"--sizes: {word.strip()!r} is not a size from 8 bytes to 16G. "
                "Write a list such as 4K,1M,256M (powers of 1024)."
            )
        found.add(size // LEAST_SIZE * LEAST_SIZE)
    return tuple(sorted(found))


def parse_tensor(words: str | None) -> int | None:
    """Bytes of a float32 tensor ``RxC``. Raises Problem."""
    if words is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})", words)
    size = int(match[1]) * int(match[2]) * FLOAT32 if match else 0
    if not LEAST_SIZE <= size <= MOST_SIZE:
        raise Problem(
            f"--tensor: {words!r} is not a shape of 8 bytes to 16 GiB. Write ROWSxCOLUMNS, for example 10000x10000."
        )
    return size
