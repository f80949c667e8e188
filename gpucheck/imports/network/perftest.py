"""perftest (ib_write_bw, ib_read_bw, ib_send_lat and others): tables and the JSON of --out_json.

Its JSON is not always valid (missing commas, nan), so single names are looked for. What a number means depends on the
port's rate, which perftest does not print: the numbers are shown, not evaluated.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._kind import Kind, messages_in
from gpucheck.imports._text import first_line, objects, regex, spans, with_lines_above
from gpucheck.model.paste import Message, Part

NAME = "perftest"
TITLE = regex(
    r"^\s{0,60}(?P<what>(?:RDMA_(?:Write|Read)|Send|Atomic|RDMA_Write_With_Imm|Raw Ethernet)\b"
    r"[\w ()-]{0,60} Test)(?: for .{1,60})?\s*$"
)
HEAD = regex(r"^\s{0,12}#bytes\s+#iterations\s+(?P<columns>\S.{0,200})$")
ROW = regex(
    r"^\s{0,12}(?P<size>\d{1,12})\s+\d{1,12}\s+(?P<cells>[\d.]{1,20}(?:\s+(?:[\d.]{1,20}|-?nan|inf)){0,12})\s*$"
)
DEVICE = regex(r"\bDevice\s{1,12}: ([\w.-]{1,60})")
MTU = regex(r"^\s{0,4}Mtu\s{1,20}: (\d{3,5})\[B\]")
COMMAND = regex(r"^[^|]{0,200}\bib_(?:write|read|send|atomic)_(?:bw|lat)\b")
# Without a result there may be nothing but these.
ERRORS = (
    "* Waiting for client", "initializing CUDA", "creating CUDA Ctx", "Couldn't allocate MR", "Completion with error",
    "CUDA DMA-BUF cannot be", "Failed status ", "Did not detect devices", "Unable to find the Infiniband", "IB device ",
    "Couldn't get context for", "Did not get Message for ", "Failed to modify QP", "Port number ",
    "DMA-BUF is not supported on", "Unable to Connect the HCA",
    "Failed status-", "RDMA CM event error:", "Event: RDMA_CM",
)  # fmt: skip
BEGIN = regex(
    "|".join(
        (
            *(re.sub(r"\(\?P<\w+>", "(?:", one.pattern) for one in (TITLE, HEAD)),
            rf"^\s{{0,4}}(?:{'|'.join(map(re.escape, ERRORS))})",
        )
    )
)
INSIDE = regex(
    r"^\s{0,12}(?:-{20,}|\*{10,}|\d{1,12}\s+\d{1,12}\s+[\d.]|#bytes|\* Waiting|(?:local|remote) address: |GID: |"
    r"(?:Dual-port|Number of qps|Transport type|Connection type|PCIe relax order|[TR]X depth|CQ Moderation|CQE Poll|"
    r"Link type|GID index|Max inline data|Data ex\. method|Using SRQ|Post List|Outstand reads|Device|Use CUDA)\b|"
    r"ibv_wr\* API|rdma_cm QPs|Conflicting CPU|Test integrity|initializing CUDA|Listing all CUDA|"
    r"There are \d{1,3} devices|RDMA CM event|Event: RDMA_CM|"
    r"CUDA (?:device |DMA-BUF)|Picking device|\[pid = \d|creating CUDA|making it the|cuMemAlloc|allocated (?:GPU|\d)|"
    r"deallocating|destroying|Perftest doesn't|WARNING: |Couldn't |Couldnt |Failed |Unable to |Completion with error|"
    r"wr_id|scnt=|Problems with warm|Using DMA-BUF|Mtu |mlx5: |ethernet_read_keys|Requested |ERRNO: |failed to create|"
    r"Parser function|Segmentation fault|Did not |If device exists|IB device |Port number |cuMemGet|Conflicting )"
)
NUMBER = regex(r'"(?P<name>BW_average|BW_peak|t_avg|t_typical|MsgSize|Device|test)"\s*:\s*"?(?P<value>[\w.+-]{1,60})')
MARKS = ('"BW_average"', '"t_avg"', '"test_info"')
UNITS = {"gb/sec": "Gb/s", "mb/sec": "MB/s", "mib/sec": "MiB/s"}


def parse(lines: list[str]) -> Part | None:
    is_json = first_line(lines).lstrip().startswith("{")
    words = list(_of_json("\n".join(lines))) if is_json else [str(one) for one in results(lines)]
    found = _without_echoes(messages_in(NAME, lines))
    if not words and not found and any(map(HEAD.match, lines)):
        found = (Message(key=f"{NAME}.no-row", text=next(filter(HEAD.match, lines)).strip()),)
    if not words and not found:
        return None
    return Part(messages=found, looked_at=tuple(words))


# Lines around a failure that report less of it.
ECHOES = {
    f"{NAME}.registration": tuple(f"{NAME}.{one}" for one in ("gpu-memory", "no-dmabuf", "pinned-limit")),
    f"{NAME}.completion": (f"{NAME}.protection", f"{NAME}.no-answer"),
    f"{NAME}.context": (f"{NAME}.port",),
}


def _without_echoes(found: Sequence[Message]) -> tuple[Message, ...]:
    keys = {one.key for one in found}
    return tuple(one for one in found if keys.isdisjoint(ECHOES.get(one.key, ())))


class Result(NamedTuple):
    """The best row of one table. value: BW average or t_avg, in unit (``Gb/s MB/s us``). mtu: bytes."""

    what: str
    device: str
    size: int
    value: float
    unit: str
    mtu: int | None = None

    def __str__(self) -> str:
        of = f" of {self.device}" if self.device else ""
        return f"{self.what}{of}: {self.value:g} {self.unit} with {self.size} bytes"


def results(lines: Sequence[str]) -> Iterator[Result]:
    """Yield one for every table. By the heading: BW average is the second column, t_avg the fourth."""
    what, device, mtu = "RDMA test", "", None
    unit, at = "", 0
    best: Result | None = None
    for line in [*lines, "#bytes #iterations end"]:
        if title := TITLE.match(line):
            what, device, mtu = title["what"].strip(), "", None
        if found := DEVICE.search(line):
            device = found[1]
        if found := MTU.match(line):
            mtu = int(found[1])
        if head := HEAD.match(line):
            if best is not None:
                yield best
            best = None
            columns = head["columns"]
            unit = next((word for name, word in UNITS.items() if f"[{name}]" in columns.lower()), "")
            at = 1 if unit else 3
            unit = unit or ("us" if "usec" in columns else "")
        elif unit and (row := ROW.match(line)) and (value := _value(row["cells"].split(), at)) is not None:
            new = Result(what, device, int(row["size"]), value, unit, mtu)
            best = new if best is None or (new.value < best.value if unit == "us" else new.value > best.value) else best
    if best is not None:
        yield best


def _value(cells: Sequence[str], at: int) -> float | None:
    try:
        return float(cells[min(at, len(cells) - 1)])
    except ValueError:
        return None


def _of_json(text: str) -> Iterator[str]:
    values = {match["name"]: match["value"] for match in NUMBER.finditer(text)}
    what = values.get("test", "RDMA test").replace("_", " ")
    of = f" of {values['Device']}" if "Device" in values else ""
    size = f" with {values['MsgSize']} bytes" if "MsgSize" in values else ""
    if "BW_average" in values:
        yield f"{what}{of}: {values['BW_average']} (unit as requested){size}"
    elif "t_avg" in values or "t_typical" in values:
        yield f"{what}{of}: {values.get('t_avg', values.get('t_typical'))} us{size}"


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Tables and errors, with the rule or the command above them, and objects of JSON."""
    found = sorted([*spans(lines, BEGIN, INSIDE), *objects(lines, *MARKS)])
    return with_lines_above(lines, found, _belongs_above)


def _belongs_above(line: str) -> bool:
    return bool(line.strip()) and (not line.strip().strip("-*") or COMMAND.match(line) is not None)


KIND = Kind(
    name=NAME,
    title="the output of perftest (ib_write_bw and others)",
    parse=parse,
    hints=("#bytes", " Test", *MARKS, *ERRORS),
    blocks=_blocks,
)
