"""The lines of a large kernel log that can mean something, so that a hundred megabytes are read in seconds."""

import re
from functools import cache

from gpucheck.knowledge.kernel_messages import messages

# Every line of the driver and of its devices, and the heads of records and traces of several lines.
DRIVER = ("NVRM", "nvidia", "NVSwitch", "Xid", "[Hardware Error]", "pcieport", "nouveau", "vfio-pci", "[10de:")
TRACES = ("soft lockup", "BUG:", "general protection fault", "Oops", "hard LOCKUP", "kernel BUG at", "blocked for more")
BEFORE, AFTER, AFTER_A_TRACE = 1, 2, 60
GROUP = re.compile(r"\((?:[^()\\]|\\.)*\)")


@cache
def _words() -> tuple[str, ...]:
    """What every message with a meaning holds; words that imply another one are left out."""
    words = {*DRIVER, *(word for row in messages() if not all(map(_by_driver, row.patterns)) for word in row.words)}
    return tuple(sorted(word for word in words if not any(one != word and one in word for one in words)))


def _by_driver(pattern: str) -> bool:
    """Whether whatever matches begins with a word of DRIVER."""
    rest, before = pattern, ""
    while rest != before:
        rest, before = GROUP.sub("", rest), rest
    return pattern.startswith(DRIVER) and "|" not in rest


def relevant(lines: list[str]) -> list[str]:
    """The same log without lines that no reader of it looks at. What stands around a relevant line stays."""
    text = "\n".join(lines)
    present = [(word, AFTER) for word in _words() if word in text]
    present += [(word, AFTER_A_TRACE) for word in TRACES if word in text]
    keep: set[int] = set()
    for word, after in present:
        for at in [i for i, line in enumerate(lines) if word in line]:
            # A run of relevant lines is added once.
            if at + after not in keep:
                keep.update(range(max(0, at - BEFORE), at + after + 1))
            elif at - BEFORE not in keep:
                keep.update(range(max(0, at - BEFORE), at + 1))
    return [lines[at] for at in sorted(keep) if at < len(lines)]
