"""What nvidia-smi prints in place of its table, in one line."""

from dataclasses import replace as changed

from msgspec.structs import replace

from gpucheck.imports._messages import of_messages
from gpucheck.imports._pieces import as_part
from gpucheck.imports.nvidia_smi import _values as v
from gpucheck.model.diagnosis.paste import Part

NAME = "nvidia-smi"
_LINES = of_messages(
    NAME,
    "an error message of nvidia-smi",
    ("NVML", "NVIDIA-SMI", "nvidia-smi", "device handle", "No devices were found", "infoROM", "vlink"),
    "messages of nvidia-smi",
)


def parse(lines: list[str]) -> Part:
    """The messages, each with the bus id of its GPU as Linux writes it. Raises ImportProblem, and nothing else."""
    part = as_part(_LINES.parse(lines))
    return replace(part, messages=tuple(replace(m, gpu=v.bus_id(m.gpu) or m.gpu) for m in part.messages))


# Exact wordings: tried before the loose kinds, some of which know the same lines from other programs.
KIND = changed(_LINES, parse=parse, loose=False)
