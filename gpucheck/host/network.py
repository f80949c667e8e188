"""RDMA devices from /sys/class/infiniband: no tool and no root is needed.

Counters are not read: on functions that firmware owns each read of one adds an error to the kernel log.
"""

import re
from pathlib import Path

from gpucheck.host.readers.files import folder_names, text
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.processes.deadline import StuckError, in_time

# A register access of a broken card may take a second; the next devices must still be read.
DEVICE_S = 5.0
NUMBERED = re.compile(r"\d+:\s*(.+)", re.DOTALL)
RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")
MOST_DEVICES, MOST_PORTS, MOST_TEXT = 1024, 64, 80


def read_rdma(root: Path) -> tuple[RdmaDevice, ...]:
    """Return the devices below ``root``/sys, ordered by name; each is read alone, with a deadline."""
    folder = root / "sys/class/infiniband"
    return tuple(_in_time(name, folder / name) for name in (folder_names(folder) or ())[:MOST_DEVICES])


def _in_time(name: str, folder: Path) -> RdmaDevice:
    try:
        return in_time(f"reading {name}", lambda: _device(name, folder), DEVICE_S)
    except StuckError:
        return RdmaDevice(name=name, unread=f"no answer within {DEVICE_S:g} s")
    except (OSError, ValueError) as error:
        return RdmaDevice(name=name, unread=str(error)[:MOST_TEXT])


def _device(name: str, folder: Path) -> RdmaDevice:
    ports = [int(number) for number in folder_names(folder / "ports") or () if number.isdecimal() and len(number) < 4]
    return RdmaDevice(
        name=name,
        is_virtual=(folder / "device/physfn").exists(),
        kind=_word(folder / "node_type"),
        board=_line(folder / "board_id"),
        model=_line(folder / "hca_type"),
        firmware=_line(folder / "fw_ver"),
        card=_guid(_line(folder / "sys_image_guid")),
        ports=tuple(_port(number, folder / f"ports/{number}") for number in sorted(ports)[:MOST_PORTS]),
        # A device that leaves while it is read has a folder without files.
        unread=None if ports else "it has no port that could be read",
    )


def _port(number: int, folder: Path) -> RdmaPort:
    rate = RATE.match(_line(folder / "rate") or "")
    layer = _line(folder / "link_layer")
    return RdmaPort(
        number=number,
        state=_word(folder / "state"),
        physical=_word(folder / "phys_state"),
        rate_gbit_s=float(rate[1]) if rate else None,
        link_layer=layer.lower() if layer else None,
        lid=_hexadecimal(_line(folder / "lid")),
    )


def _line(path: Path) -> str | None:
    """The first line; None for an empty file, or one that is not text."""
    content = text(path)
    first = content.splitlines()[0].strip() if content else ""
    return first[:MOST_TEXT] if first and first.isprintable() and "\ufffd" not in first else None


def _word(path: Path) -> str | None:
    """``active`` of ``4: ACTIVE``; None for any other form."""
    found = NUMBERED.fullmatch(_line(path) or "")
    return found[1].strip().lower() if found else None


def _guid(words: str | None) -> str | None:
    """None for zeros, which EFA and virtual functions have."""
    return words if words and words.strip("0:") else None


def _hexadecimal(words: str | None) -> int | None:
    return int(words, 16) if words and re.fullmatch(r"0x[0-9a-f]{1,8}", words) else None
