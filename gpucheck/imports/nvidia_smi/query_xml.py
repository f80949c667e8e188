"""``nvidia-smi -q -x``: the same page as XML. Its tags are scanned, so that a page cut short is read to its end.

Nothing is ever expanded or opened: a document type is skipped, an entity stays as it is written.
"""

from collections.abc import Iterator, Sequence

from gpucheck.imports._blocks import until, with_lines_above
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.nvidia_smi import _values as v
from gpucheck.imports.nvidia_smi._fields import Path
from gpucheck.imports.nvidia_smi.query import MOST_DEPTH, NAME, OTHERS, page
from gpucheck.model.paste import Part

TAG = regex(r"<(/?)([A-Za-z_]\w{0,60})((?:\s[^<>]{0,300})?)>([^<>]{0,400})")
ID = regex(rf'\bid="({v.BUS_ID})"')
MOST_GPUS = 128
DECLARATION = regex(r"\s*<[?!]")
END = "</nvidia_smi_log>"
BEGIN = regex(r"<nvidia_smi_log\b|<gpu id=\"[0-9A-Fa-f]{4,8}:")


def parse(lines: list[str]) -> Part:
    """The GPUs of the page. Raises ImportProblem, and nothing else."""
    head: dict[str, str] = {}
    gpus: list[tuple[str | None, list[tuple[Path, str]]]] = []
    above: list[str] = []
    for close, tag, attributes, value in TAG.findall("\n".join(lines)):
        if close:
            if tag in above:
                del above[len(above) - 1 - above[::-1].index(tag) :]
            continue
        if tag == "gpu" and not any(one in OTHERS for one in above) and len(gpus) < MOST_GPUS:
            found = ID.search(attributes)
            gpus.append((found[1] if found else None, []))
            above = ["gpu"]
            continue
        if len(above) < MOST_DEPTH:
            above.append(tag)
        if value.strip() and not any(one in OTHERS for one in above):
            if gpus:
                gpus[-1][1].append((tuple(above[1:]), value))
            else:
                head.setdefault(tag, value.strip())
    if not gpus and "driver_version" not in head:
        raise absent(
            "nvidia-smi -q -x page", "it has no element of a GPU", "Save it again: nvidia-smi -q -x > gpus.xml"
        )
    return page(gpus, head, lines)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """From the declaration to the end of the page, or of the text where it was cut."""
    for first, last in with_lines_above(lines, until(lines, BEGIN.search, END), DECLARATION.match):
        while END not in lines[last] and last > first and not TAG.search(lines[last]):
            last -= 1
        yield first, last


KIND = Kind(
    NAME,
    "the output of nvidia-smi -q -x",
    parse,
    holds="GPU state",
    hints=("<nvidia_smi_log", "<gpu id="),
    blocks=_blocks,
)
