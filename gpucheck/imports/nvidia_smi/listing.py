"""``nvidia-smi -L``: names and UUIDs."""

from msgspec.structs import replace

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.nvidia_smi._fields import named, part
from gpucheck.model.host.hardware import Gpu, Health
from gpucheck.model.paste import Part
from gpucheck.printable import counted

GPU = regex(r"^\s{0,8}GPU (\d{1,3}): ([^\n(]{1,80}?) \(UUID: (GPU-[0-9a-fA-Fx-]{1,60}|[^)]{1,60})\)\s*$")
MIG = regex(r"^\s{1,12}MIG \S{1,30}\s+Device\s+\d{1,3}:\s*\(UUID: [^)]{1,80}\)\s*$")


def parse(lines: list[str]) -> Part:
    """The GPUs' names. Raises ImportProblem, and nothing else."""
    found: dict[int, Gpu] = {}
    last = -1
    for line in lines:
        if match := GPU.match(line):
            last = int(match[1])
            found.setdefault(last, named(last, match[2], match[3]))
        elif last in found and MIG.match(line):
            found[last] = replace(found[last], health=Health(mig=True))
    if not found:
        raise absent("nvidia-smi -L", "no line names a GPU with its UUID", "Save it again: nvidia-smi -L > gpus.txt")
    gpus = [found[index] for index in sorted(found)]
    return part(gpus, extra=[f"the list of {counted(len(gpus), 'GPU')}"])


KIND = Kind(
    name="nvidia-smi",
    title="the output of nvidia-smi -L",
    parse=parse,
    holds="names",
    loose=True,
    hints=("(UUID: ",),
    blocks=lambda lines: spans(lines, GPU, MIG),
)
