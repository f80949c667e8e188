"""RDMA devices from /sys/class/infiniband, and their counters: no tool and no root is needed."""

import array
import errno
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from gpucheck.host.driver import denied
from gpucheck.host.readers.files import folder_names, text
from gpucheck.knowledge.port_counters import CEILINGS, EVIDENCE
from gpucheck.model.host.network import PortCounters, RdmaDevice, RdmaPort
from gpucheck.processes.deadline import StuckError, in_time

# A register access of a broken card may take a second; the next devices must still be read.
DEVICE_S = 5.0
NUMBERED = re.compile(r"\d+:\s*(.+)", re.DOTALL)
RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")
MOST_DEVICES, MOST_PORTS, MOST_TEXT = 1024, 64, 80
# Drivers have 128 partition keys and 256 addresses a port, of which the first ones are in use.
KEYS, ADDRESSES = 8, 16
ROUTED = re.compile(r"(?!fe80|0000:0000:0000:0000:0000:0000)[0-9a-f:]{39}")
# Two reads within this time have the same answer (lifespan of mlx5).
APART_S = 0.05
# A port without such a counter, or a function that may not read it.
NOT_OFFERED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTO)
# A kernel without it, or without generic netlink.
NO_DEVLINK = (errno.ENOENT, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT)
NETMASK = 7  # column of /proc/net/route
# ioctl and structures of linux/ethtool.h
SIOCETHTOOL, GSTRINGS, GSTATS, GSSET_INFO, STATS = 0x8946, 0x1B, 0x1D, 0x37, 1
NAME_BYTES, MOST_STATS = 32, 1 << 16


def read_rdma(root: Path) -> tuple[RdmaDevice, ...]:
    """Return the devices below ``root``/sys, ordered by name; each is read alone, with a deadline."""
    folder = root / "sys/class/infiniband"
    routes = _default_routes(root)
    devices = [_in_time(name, folder / name, routes) for name in (folder_names(folder) or ())[:MOST_DEVICES]]
    reporters = _reporters(root) if devices else {}
    devices = _with_files(root, devices) if devices else []
    unread = reporters.get("", {})
    every = {one.name: reporters.get((folder / one.name / "device").resolve().name, unread) for one in devices}
    return tuple(replace(one, reporters=tuple(every[one.name].items())) if every[one.name] else one for one in devices)


def _reporters(root: Path) -> dict[str, dict[str, str]]:
    """By PCI address; "" if they could not be read: a driver in recovery lets the question wait.

    A simulated machine has files in its place.
    """
    if root != Path("/"):
        lines = {name: (text(root / "devlink" / name) or "").split() for name in folder_names(root / "devlink") or ()}
        return {name: dict(zip(words[::2], words[1::2], strict=False)) for name, words in lines.items()}
    try:
        return in_time("reading devlink", read_reporters, DEVICE_S)
    except StuckError:
        return {"": {"devlink": f"no answer within {DEVICE_S:g} s"}}
    except OSError as error:
        return {} if error.errno in NO_DEVLINK else {"": {"devlink": str(error)[:MOST_TEXT]}}


def _with_files(root: Path, devices: list[RdmaDevice]) -> list[RdmaDevice]:
    folder = root / "sys/class/infiniband_verbs"
    files = {_line(folder / name / "ibdev"): name for name in folder_names(folder) or () if name.startswith("uverbs")}
    places = {one.name: root / f"dev/infiniband/{files[one.name]}" for one in devices if one.name in files}
    errors = {name: denied(place) for name, place in places.items()}
    if root != Path("/"):
        # Files of a simulated machine belong to the user who wrote it.
        errors = {name: error if error == "ENOENT" else None for name, error in errors.items()}
    return [
        replace(one, verbs=places[one.name].name, verbs_error=errors[one.name]) if one.name in places else one
        for one in devices
    ]


def _in_time(name: str, folder: Path, routes: set[str]) -> RdmaDevice:
    try:
        return in_time(f"reading {name}", lambda: _device(name, folder, routes), DEVICE_S)
    except StuckError:
        return RdmaDevice(name=name, unread=f"no answer within {DEVICE_S:g} s")
    except (OSError, ValueError) as error:
        return RdmaDevice(name=name, unread=str(error)[:MOST_TEXT])


def _default_routes(root: Path) -> set[str]:
    """Return the interfaces with a default route, of IPv4 or IPv6, in this network namespace."""
    rows = [line.split() for line in (text(root / "proc/net/route") or "").splitlines()]
    rows6 = [line.split() for line in (text(root / "proc/net/ipv6_route") or "").splitlines()]
    found = {row[0] for row in rows if len(row) > NETMASK and row[1] == row[NETMASK] == "0" * 8}
    # The kernel has an entry that rejects everything at lo.
    return found | {row[-1] for row in rows6 if row[:2] == ["0" * 32, "00"]} - {"lo"}


def _above(net: Path, interface: str) -> set[str]:
    """Return the interface and those that use it, such as a bond and a VLAN of the bond."""
    found, left = {interface}, [interface]
    while left:
        names = folder_names(net / left.pop()) or ()
        new = {name.removeprefix("upper_") for name in names if name.startswith("upper_")} - found
        found |= new
        left += new
    return found


def _device(name: str, folder: Path, routes: set[str]) -> RdmaDevice:
    ports = [int(number) for number in folder_names(folder / "ports") or () if number.isdecimal() and len(number) < 4]
    net, interfaces = folder.parent.parent / "net", _interfaces(folder)
    bonds = [(net / one / "master").resolve().name for one in interfaces if (net / one / "bonding_slave").exists()]
    return RdmaDevice(
        name=name,
        is_virtual=(folder / "device/physfn").exists(),
        kind=_word(folder / "node_type"),
        board=_line(folder / "board_id"),
        model=_line(folder / "hca_type"),
        firmware=_line(folder / "fw_ver"),
        card=_guid(_line(folder / "sys_image_guid")),
        route=any(not routes.isdisjoint(_above(net, one)) for one in interfaces),
        bond=next(iter(bonds), None),
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
        pkeys=_keys(folder / "pkeys") if layer == "InfiniBand" else None,
        gids=tuple(_routed(folder)) if layer == "Ethernet" else None,
        mtu=_mtu(folder) if layer == "Ethernet" else None,
    )


def _keys(folder: Path) -> tuple[int, ...] | None:
    keys = [_hexadecimal(_line(folder / str(index))) for index in range(KEYS)]
    return tuple(key for key in keys if key) or None


def _routed(folder: Path) -> Iterator[int]:
    for index in range(ADDRESSES):
        routed = ROUTED.fullmatch(_line(folder / f"gids/{index}") or "")
        if routed and _line(folder / f"gid_attrs/types/{index}") == "RoCE v2":
            yield index


def _mtu(folder: Path) -> int | None:
    device = folder.parent.parent
    found = [_line(device / f"device/net/{name}/mtu") or "" for name in _interfaces(device)]
    return int(found[0]) if len(found) == 1 and re.fullmatch(r"\d{2,6}", found[0]) else None


def _interfaces(device: Path) -> tuple[str, ...]:
    return folder_names(device / "device/net") or ()


def read_counters(
    root: Path,
    devices: Iterable[RdmaDevice],
    before: Iterable[PortCounters] = (),
    moving: Mapping[str, Mapping[str, float] | None] | None = None,
) -> tuple[PortCounters, ...]:
    """Return the counters of active ports that are evidence; a function is left alone after the first that fails.

    Functions that firmware owns have no interface where others of their link layer have one: each read of one adds an
    error to the kernel log. InfiniBand without IPoIB has none at all.
    before: an earlier reading. moving: of a simulated machine, by port, how fast its counters rise; None: it leaves.
    """
    then = {one.port: one.seconds or 0.0 for one in before}
    if then:
        time.sleep(max(0.0, APART_S - (time.monotonic() - max(then.values()))))
    found = []
    folders = {device: root / "sys/class/infiniband" / device.name for device in devices if not device.is_virtual}
    every = {device: _interfaces(folder) for device, folder in folders.items()}
    usual = {port.link_layer for device, names in every.items() if names for port in device.ports}
    for device, names in every.items():
        folder = folders[device]
        for port in device.ports if names or not usual.intersection(port.link_layer for port in device.ports) else ():
            if not port.is_active:
                continue
            key = f"{device.name}/{port.number}"
            rates = (moving or {}).get(key, {}) if then else {}
            if rates is not None and (one := _counters(key, folder / f"ports/{port.number}", root, names, moving)):
                passed = (one.seconds or 0.0) - then.get(key, 0.0)
                found.append(_moved(one, rates, passed) if rates else one)
    return tuple(found)


def _counters(
    key: str, port: Path, root: Path, interfaces: Iterable[str], simulated: Mapping[str, object] | None
) -> PortCounters | None:
    values: dict[str, int] = {}

    def read() -> None:
        if simulated is None:
            for name in interfaces:
                with suppress(OSError):
                    values.update(_statistics(name))
        else:
            for name in interfaces:
                lines = (line.split(": ") for line in (text(root / "ethtool" / name) or "").splitlines())
                values.update({name: int(value) for name, value in lines if name in EVIDENCE})
        with suppress(FileNotFoundError):
            for folder in ("counters", "hw_counters"):
                for name in sorted(EVIDENCE.intersection(folder_names(port / folder) or ())):
                    values[name] = _number(port / folder / name)

    try:
        in_time(f"reading counters of {key}", read, DEVICE_S)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            return PortCounters(port=key, unread=str(error.strerror)[:MOST_TEXT])
    except (StuckError, ValueError) as error:
        return PortCounters(port=key, unread=str(error)[:MOST_TEXT])
    return PortCounters(port=key, values=values, seconds=time.monotonic()) if values else None


def _number(path: Path) -> int:
    """A counter. Raises OSError, or ValueError for anything but a number; ``N/A (no PMA)`` is not offered."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, MOST_TEXT)
    finally:
        os.close(descriptor)
    if content.startswith(b"N/A"):
        raise OSError(errno.EOPNOTSUPP, "no PMA")
    if not re.fullmatch(rb"\d{1,20}\s*", content):
        raise ValueError(f"{path.name} is not a number")
    return int(content)


def _moved(one: PortCounters, rates: Mapping[str, float], seconds: float) -> PortCounters:
    now = {
        name: min(value + int(rates.get(name, 0.0) * seconds), CEILINGS.get(name, 1 << 64))
        for name, value in one.values.items()
    }
    return PortCounters(port=one.port, values=now, seconds=one.seconds)


def _statistics(interface: str) -> Iterator[tuple[str, int]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:

        def ask(words: bytes, size: int) -> bytes:
            buffer = array.array("B", words.ljust(size, b"\0"))
            request = struct.pack("16sP16x", interface.encode(), buffer.buffer_info()[0])
            fcntl.ioctl(door, SIOCETHTOOL, request)
            return buffer.tobytes()

        count = struct.unpack_from("I", ask(struct.pack("IIQI", GSSET_INFO, 0, 1 << STATS, 0), 64), 16)[0]
        # The driver may have more by the time of the next question, and writes all that it has.
        most = 2 * min(count, MOST_STATS) + 1024
        names = ask(struct.pack("III", GSTRINGS, STATS, count), 12 + NAME_BYTES * most)
        values = ask(struct.pack("II", GSTATS, count), 8 + 8 * most)
    for index in range(min(count, MOST_STATS)):
        (name,) = struct.unpack_from(f"{NAME_BYTES}s", names, 12 + NAME_BYTES * index)
        word = name.partition(b"\0")[0].decode("ascii", "replace")
        if word in EVIDENCE:
            yield word, struct.unpack_from("Q", values, 8 + 8 * index)[0]


def _line(path: Path) -> str | None:
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


# Health of cards as their drivers state it: devlink, by generic netlink, which answers any user and changes nothing.
# Numbers: linux/devlink.h, linux/genetlink.h.
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
