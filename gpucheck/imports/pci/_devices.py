"""The devices that lspci lists, each with the content of its registers."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpucheck.imports._regex import regex
from gpucheck.imports.pci._registers import Registers

HEAD = regex(
    r"^\s{0,8}(?:\d{1,5}:)??(?:[0-9a-f:.]{4,13}/){0,8}(?:(?P<domain>[0-9a-f]{4,8}):)?"
    r"(?P<slot>[0-9a-f]{2}:[01][0-9a-f]\.[0-7])\s{1,8}"
    r"(?:\"?(?P<class>3D controller|[A-Z][\w/ ()&.,+-]{2,60}?)(?: \[(?P<id>[0-9a-f]{4})\])?: |"
    r"(?P<number>[0-9a-f]{4}): )"
    r"(?P<name>\S.{0,400})$"
)
ABOVE = regex(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])/")
# The device that a command or a comment names: lspci -vvv -s 61:00.0
COMMAND = regex(r"\blspci\b.{0,200}?\s-s\s?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f](?:\.[0-7])?)\b")
SLOT_ID = regex(r"(?:\[|^)([0-9a-f]{4}):([0-9a-f]{4})(?:\]|\b)")
MODEL = regex(r"\[([^\[\]]{2,80})\]")
GPU_CLASSES = ("3D controller", "VGA compatible controller", "Display controller")
CHIPSET = regex(r"\b(?:Chipset|PCH)\b")
MOBILE = regex(r"Mobile|Max-Q|\b\d{3,4}MX?\b|Optimus", re.IGNORECASE)


@dataclass
class Device:
    """One function. kind: its class as lspci names it, empty where only a command names the function."""

    bus_id: str
    kind: str = ""
    name: str = ""
    class_id: str = ""
    ids: tuple[str, str] | None = None
    line: int = 0
    head: str = ""
    path: tuple[str, ...] = ()
    is_gpu: bool = False
    seen: Registers = field(default_factory=Registers)

    @property
    def is_bridge(self) -> bool:
        """A PCI bridge, or a function that a comment calls the bridge above a GPU."""
        return self.kind in ("PCI bridge", "bridge") or self.class_id == "0604"

    @property
    def is_gone(self) -> bool:
        """Its registers read as ones only."""
        return self.seen.gone or "(rev ff)" in self.name

    @property
    def may_sleep(self) -> bool:
        """A notebook's GPU, or one without a name, which power management may have switched off."""
        return MOBILE.search(self.name) is not None or self.model is None

    @property
    def is_of_chipset(self) -> bool:
        return CHIPSET.search(self.name) is not None

    @property
    def model(self) -> str | None:
        """The product's name; None where the list of PCI ids has none or several."""
        if not self.is_gpu:
            return None
        names = [name for name in MODEL.findall(self.name) if not SLOT_ID.match(name) and "/" not in name]
        return names[0] if len(names) == 1 else None


def bus_id_of(domain: str | None, slot: str) -> str:
    """As Linux writes it."""
    domain = (domain or "0000").lower()
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{slot.lower()}"


def devices(lines: Iterable[str], unnamed: list[tuple[int, str]]) -> Iterator[Device]:
    """Every device in order; the same one may come several times.

    A blank line and another command end a device; lines of registers that belong to none are added to `unnamed`.
    """
    now: Device | None = None
    for number, line in enumerate(lines, start=1):
        found = _begun(line, number)
        if found is not None or not line.strip() or "lspci" in line:
            if now is not None:
                yield now
            now = found
        elif now is not None:
            now.seen.take(line)
        else:
            unnamed.append((number, line))
    if now is not None:
        yield now


def _begun(line: str, number: int) -> Device | None:
    """The device that a line begins: its own line of a list, or a command for one device."""
    if match := HEAD.match(line):
        return _device(match, number, line)
    if (match := COMMAND.search(line)) is None:
        return None
    slot = match[2] if "." in match[2] else f"{match[2]}.0"
    return Device(
        bus_id_of(match[1], slot),
        kind="bridge" if "bridge" in line else "",
        line=number,
        head=line.strip(),
        is_gpu="GPU function" in line,
    )


def _device(match: re.Match[str], number: int, line: str) -> Device:
    kind, name = match["class"] or "", match["name"]
    class_id = match["id"] or match["number"] or ""
    found = SLOT_ID.findall(name)
    ids = found[-1] if found else None
    is_nvidia = name.lower().startswith("nvidia ") or (ids is not None and ids[0] == "10de")
    is_display = kind in GPU_CLASSES or class_id[:3] == "030"
    return Device(
        bus_id_of(match["domain"], match["slot"]),
        kind=kind,
        name=name,
        class_id=class_id,
        ids=ids,
        line=number,
        head=line.strip(),
        path=tuple(bus_id_of(domain or None, slot) for domain, slot in ABOVE.findall(line[: match.start("slot")])),
        is_gpu=is_nvidia and is_display,
    )


def merged(found: Iterable[Device]) -> dict[str, Device]:
    """Return each function once, with all that was reported of it."""
    every: dict[str, Device] = {}
    for device in found:
        known = every.setdefault(device.bus_id, device)
        if known is device:
            continue
        for name in ("kind", "name", "class_id", "ids", "path", "is_gpu"):
            if not getattr(known, name) or (name == "kind" and known.kind == "bridge"):
                setattr(known, name, getattr(device, name) or getattr(known, name))
        empty = Registers()
        for name, value in vars(device.seen).items():
            if value != getattr(empty, name):
                setattr(known.seen, name, value)
    return every
