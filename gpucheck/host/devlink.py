"""Health of network cards as their drivers state it: reporters of devlink, by generic netlink. No tool and no root.

Numbers: linux/devlink.h, linux/genetlink.h. A dump changes nothing; the kernel answers it to any user.
"""

import os
import socket
import struct
from collections.abc import Iterator

NETLINK_GENERIC, CONTROL = 16, 0x10
GET_FAMILY, FAMILY_ID, FAMILY_NAME = 3, 1, 2
REPORTER_GET, BUS_NAME, DEVICE_NAME, REPORTER, REPORTER_NAME, REPORTER_STATE = 52, 1, 2, 114, 115, 116
REQUEST, DUMP, ERROR, DONE = 0x1, 0x300, 0x2, 0x3
NESTED = 0x3FFF  # the type of an attribute without its two flags
STATES = {0: "healthy", 1: "error"}
BUFFER, WAIT_S, MOST_MESSAGES = 1 << 16, 2.0, 4096

Attributes = dict[int, bytes]


def read_reporters() -> dict[str, dict[str, str]]:
    """Return the state of each reporter by PCI address and name. Raises OSError: ENOENT of a kernel without devlink."""
    found: dict[str, dict[str, str]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as door:
        door.settimeout(WAIT_S)
        door.bind((0, 0))
        name = struct.pack("HH", 12, FAMILY_NAME) + b"devlink\0"
        family = next((struct.unpack("H", one[FAMILY_ID])[0] for one in _asked(door, CONTROL, GET_FAMILY, 0, name)), 0)
        for one in _asked(door, family, REPORTER_GET, DUMP, b""):
            own = dict(_attributes(one.get(REPORTER, b"")))
            state = own.get(REPORTER_STATE, b"")[:1]
            if _text(one, BUS_NAME) == "pci" and state:
                # Ports of a device have reporters of equal names, of which one in error counts.
                reporters = found.setdefault(_text(one, DEVICE_NAME), {})
                words = STATES.get(state[0], f"state {state[0]}")
                reporters[_text(own, REPORTER_NAME)] = max(
                    words, reporters.get(_text(own, REPORTER_NAME), ""), key=_bad
                )
    return found


def _bad(state: str) -> int:
    return ("", "healthy").index(state) if state in ("", "healthy") else 2


def _asked(door: socket.socket, family: int, command: int, flags: int, attributes: bytes) -> Iterator[Attributes]:
    """Yield the attributes of each answer. Raises OSError."""
    length = 20 + len(attributes)
    door.send(struct.pack("IHHIIBBH", length, family, REQUEST | flags, 1, 0, command, 1, 0) + attributes)
    for _ in range(MOST_MESSAGES):
        answer, at = door.recv(BUFFER), 0
        while at + 16 <= len(answer):
            size, kind = struct.unpack_from("IH", answer, at)
            if kind == ERROR and (number := -struct.unpack_from("i", answer, at + 16)[0]):
                raise OSError(number, os.strerror(number))
            if kind in (ERROR, DONE) or size < 20:
                return
            yield dict(_attributes(answer[at + 20 : at + size]))
            at += (size + 3) & ~3
        if not flags:
            return


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(content):
        size, kind = struct.unpack_from("HH", content, at)
        if size < 4:
            return
        yield kind & NESTED, content[at + 4 : at + size]
        at += (size + 3) & ~3


def _text(attributes: Attributes, kind: int) -> str:
    return attributes.get(kind, b"").partition(b"\0")[0].decode("ascii", "replace")[:80]
