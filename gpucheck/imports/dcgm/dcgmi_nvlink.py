"""dcgmi nvlink: the state of every NVLink (-s) and the error counters of one GPU (-e)."""

from collections.abc import Iterator

from gpucheck.imports._blocks import spans
from gpucheck.imports._common import in_order
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.dcgm._meaning import NAME
from gpucheck.imports.dcgm._table import framed, rows
from gpucheck.model.diagnosis.observations import NvLinkCount, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

BEGIN = regex(
    r"^\s{0,8}\|\s{1,4}NvLink Link Status\s{1,4}\||^\s{0,8}\| NVLINK Error Counts\b|"
    r"^\s{0,8}gpuId \d{1,3}: [UDX_] [UDX_] "
)
INSIDE = regex(
    r"^\s{0,8}(?:\+[-=]|\||GPUs:|NvSwitches:|Key: Up=U)|^\s{0,12}(?:gpuId|physicalId) \d|"
    r"^\s{2,16}[UDX_](?: [UDX_]){0,160}\s*$"
    r"|^\s{1,8}(?:No (?:GPUs|NvSwitches) found|Link Entities:)"
)
GPU = regex(r"^\s{0,12}gpuId (\d{1,3}):")
SWITCH = regex(r"^\s{0,12}(?:physicalId \d|NvSwitches:)")
STATES = regex(r"^\s{0,16}([UDX_](?: [UDX_]){0,160})\s*$")
GPU_ID = regex(r"\bGPU(?: ID)?:? (\d{1,3})\b")
COUNTED = ("CRC Data Error", "Replay Error", "Recovery Error")


def parse(lines: list[str]) -> Part:
    """Links up of links that exist, and counters above 0. Raises ImportProblem."""
    links = _links(lines)
    found = list(_errors(lines))
    has_counters = any("NVLINK Error Counts" in line for line in lines)
    if not links and not has_counters:
        raise absent(
            "NVLink of a GPU",
            "no line gives the state of the links of a GPU",
            "Give the complete output: dcgmi nvlink -s",
        )
    gpus = tuple(ObservedGpu(nvlinks=one) for one in in_order(links))
    looked_at = []
    if links:
        looked_at.append(f"NVLinks of {counted(len(links), 'GPU')}")
    if has_counters:
        looked_at.append("NVLink error counters of DCGM")
    return Part(facts=Facts(observed=Observations(gpus=gpus)), messages=tuple(found), looked_at=tuple(looked_at))


def _links(lines: list[str]) -> dict[int, NvLinkCount]:
    """By DCGM's number of the GPU. A link that is not supported does not exist; a disabled one does."""
    found: dict[int, NvLinkCount] = {}
    now: int | None = None
    for line in lines:
        if match := GPU.match(line):
            now, line = int(match[1]), line[match.end() :].partition("\u2190")[0]
            if not line.strip():
                continue
        if SWITCH.match(line):
            now = None
        elif now is not None and (states := STATES.match(line)):
            cells = states[1].split()
            if any(cell != "_" for cell in cells):
                found[now] = NvLinkCount(active=cells.count("U"), total=len(cells) - cells.count("_"))
            else:
                found[now] = NvLinkCount()
            now = None
    return found


def _errors(lines: list[str]) -> Iterator[Message]:
    gpu: str | None = None
    link = ""
    for line in lines:
        if "Error" not in line and (match := GPU_ID.search(line)):
            gpu = match[1]
    for row in rows(lines):
        if row.label.startswith("Link "):
            link = row.label
        elif row.label in COUNTED and row.text.strip().isdigit() and int(row.text[:18]) > 0:
            shown = f"{link}: {row.label}: {row.text.strip()}"
            yield Message(key=f"{NAME}.link-errors", text=shown, line=row.line, gpu=gpu)


KIND = Kind(
    name="dcgmi-nvlink",
    title="the output of dcgmi nvlink",
    parse=parse,
    hints=("NvLink Link Status", "NVLINK Error Counts", "gpuId "),
    blocks=lambda lines: framed(lines, spans(lines, BEGIN, INSIDE)),
)
