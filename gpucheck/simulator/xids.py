"""Kernel-log lines of Xid and SXid errors, in the driver's words (xids.yml)."""

from functools import cache

import msgspec

from gpucheck.simulator.data import HERE, read

PID = "pid=48213, name=python3"


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What follows a code, by code."""

    xid: dict[int, str]
    sxid: dict[int, str]


@cache
def texts() -> Texts:
    return read(HERE / "xids.yml", Texts)


def xid_line(bus_id: str, code: int) -> str:
    """``NVRM: Xid (PCI:0000:19:00): 79, ...``. Raises ValueError for a code that has no text."""
    return f"NVRM: Xid (PCI:{bus_id.rpartition('.')[0]}): {code}, {_text(texts().xid, code)}"


def sxid_line(switch: int, bus_id: str, code: int) -> str:
    """``nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, ...``. Raises ValueError for a code that has no text."""
    return f"nvidia-nvswitch{switch}: SXid (PCI:{bus_id}): {code}, {_text(texts().sxid, code)}"


def _text(table: dict[int, str], code: int) -> str:
    if code not in table:
        raise ValueError(f"code={code}: there are {', '.join(map(str, table))}")
    return table[code].replace("{pid}", PID)
