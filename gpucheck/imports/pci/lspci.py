"""Output of lspci: lists (-nn, -k), registers (-vv, -vvv) and trees (-t, -tv), alone or several in a row.

Its facts about GPUs are part of a host, not all of it: lspci -s lists one device, and a list holds GPUs that the
driver does not. So its part is marked as partial.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import regex, spans
from gpucheck.imports.pci._devices import ACS, HEAD, LINK, REDIRECTS, Device, acs_value, devices, merged
from gpucheck.model.diagnosis.observations import AcsReading, Observations, ObservedGpu, ObservedHost, Port
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import AcsControl, PciDevice, PcieLink
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

ROOT = regex(r"^\s{0,8}(?:-\+?-?|[+\\]-)\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}(?:-[0-9a-f]{2})?\]")
BRANCH = regex(r"^[ |]{0,200}[+\\]-")
TOKEN = regex(
    r"\[(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2})(?:-[0-9a-f]{2})?\]|(?P<device>[01][0-9a-f]\.[0-7])|(?P<fork>[+\\])"
)
LONGEST = 2000


class Node(NamedTuple):
    """A device of the tree. path: bus ids of the bridges above it, from the root down. name: with lspci -tv."""

    path: tuple[str, ...]
    name: str


class _Bus(NamedTuple):
    domain: str
    number: str
    path: tuple[str, ...]


def is_tree(line: str) -> bool:
    return ROOT.match(line) is not None or BRANCH.match(line) is not None


def nodes(lines: Iterable[str]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    forks: dict[int, _Bus] = {}
    for line in lines:
        if ROOT.match(line) and line.lstrip().startswith("-"):
            forks = {}
        if is_tree(line):
            _line(line[:LONGEST].rstrip(), forks, found)
    return found


def _line(line: str, forks: dict[int, _Bus], found: dict[str, Node]) -> None:
    """One line. forks: column of a fork -> the bus whose devices it joins."""
    bus: _Bus | None = None
    last: str | None = None
    at, first = 0, True
    while (token := TOKEN.search(line, at)) is not None:
        at = token.end()
        if token["fork"]:
            if first:
                bus = forks.get(token.start())
            elif bus is not None:
                forks[token.start()] = bus
            first = False
        elif token["device"]:
            first = False
            if bus is None:
                return
            last = f"{bus.domain}:{bus.number}:{token['device']}"
            name = line[at:]
            is_named = name.startswith("  ")
            found[last] = Node(bus.path, name.strip() if is_named else "")
            if is_named:
                return
        else:
            domain = token["domain"] or (bus.domain if bus else "0000")
            is_root = token["domain"] is not None or bus is None or last is None
            path = () if is_root or bus is None or last is None else (*bus.path, last)
            bus, last, first = (
                _Bus(domain[-4:] if domain.startswith("0000") else domain, token["bus"], path),
                None,
                False,
            )


RDMA_CARD = regex(r"Mellanox|ConnectX|BlueField|NetXtreme-E|Ethernet Controller E810", re.IGNORECASE)
CARD_CLASS = regex(r"^(?:Ethernet|Infiniband) controller")


class Listing(NamedTuple):
    """What is in the text: devices by bus id, and the tree."""

    every: dict[str, Device]
    tree: dict[str, Node]

    def path_of(self, device: Device) -> tuple[str, ...]:
        """The bridges above a function from the root down: of the tree, of lspci -PP, or by bus numbers of bridges."""
        if device.bus_id in self.tree:
            return self.tree[device.bus_id].path
        if device.path:
            return device.path
        domain, bus, _ = device.bus_id.split(":")
        by_secondary = {
            (bridge.bus_id.split(":")[0], bridge.secondary): bridge.bus_id
            for bridge in self.every.values()
            if bridge.secondary is not None
        }
        path: list[str] = []
        number = int(bus, 16)
        while (above := by_secondary.get((domain, number))) is not None and above not in path:
            path.insert(0, above)
            number = int(above.split(":")[1], 16)
        return tuple(path)

    def gpu(self, gpu: Device) -> ObservedGpu:
        """One GPU. Links are read at an unknown load, so `read` stays empty."""
        path = self.path_of(gpu)
        slot = self.every.get(path[-1]) if path else None
        link = Port(
            gen=gpu.sta_gen,
            width=gpu.sta_width,
            max_gen=_both(gpu.cap_gen, slot.cap_gen if slot else None),
            max_width=_both(gpu.cap_width, slot.cap_width if slot else None),
        )
        return ObservedGpu(
            model=gpu.model,
            bus_id=gpu.bus_id,
            numa_node=gpu.numa,
            pcie=Port() if gpu.is_gone else link,
            path=tuple(_port(bus_id, self.every.get(bus_id)) for bus_id in path),
            bar1_mib=None if gpu.is_gone else gpu.bar1_mib,
        )

    def redirected_cards(self, gpu: Device) -> Iterator[Message]:
        """Network cards below the same switch as a GPU, each with the bridges between them that redirect."""
        above = set(self.path_of(gpu))
        for card in self.every.values():
            if not RDMA_CARD.search(card.name) or not CARD_CLASS.match(card.kind):
                continue
            other = set(self.path_of(card))
            between = [self.every[one] for one in sorted(above ^ other) if one in self.every] if above & other else []
            bridges = [bridge.bus_id for bridge in between if (bridge.acs_ctl or 0) & REDIRECTS]
            if bridges:
                text = f"{', '.join(bridges)} redirect between GPU {gpu.bus_id} and {card.head}"
                yield Message(key="lspci.acs-network", text=text, line=card.line, gpu=gpu.bus_id)


def _both(own: int | None, slot: int | None) -> int | None:
    return own if own is None or slot is None else min(own, slot)


def _port(bus_id: str, bridge: Device | None) -> Port:
    if bridge is None:
        return Port(bus_id=bus_id)
    switch = "switch" if bridge.port in ("switch-upstream", "switch-downstream") else None
    root = "root-port" if bridge.port == "root-port" else switch
    return Port(
        bus_id=bus_id,
        kind="chipset" if bridge.is_of_chipset else root,  # type: ignore[arg-type]
        gen=bridge.sta_gen,
        width=bridge.sta_width,
        max_gen=bridge.cap_gen,
        max_width=bridge.cap_width,
    )


def acs_of(every: Iterable[Device]) -> tuple[AcsReading, ...]:
    """The registers of bridges; those of other functions redirect nothing of others."""
    return tuple(
        AcsReading(bus_id=device.bus_id, control=device.acs_ctl)
        for device in sorted(every, key=lambda device: device.bus_id)
        if device.acs_ctl is not None and (device.is_bridge or (not device.kind and not device.is_gpu))
    )


def _function(device: Device, path: tuple[str, ...]) -> PciDevice:
    vendor, number = device.ids or ("", "")
    bridge = device.port or ("bridge" if device.is_bridge else None)
    control, capability = device.acs_ctl, device.acs_cap
    return PciDevice(
        bus_id=device.bus_id,
        vendor_id=vendor,
        device_id=number,
        class_id=f"{device.class_id}00",
        numa_node=device.numa,
        path=path,
        link=PcieLink(
            generation=device.sta_gen, width=device.sta_width, max_generation=device.cap_gen, max_width=device.cap_width
        ),
        driver=device.driver,
        kind=bridge if device.is_bridge else None,  # type: ignore[arg-type]
        config_readable=device.sta_width is not None and not device.denied,
        acs=None if control is None or capability is None else AcsControl(capability=capability, control=control),
        iommu_group=device.group,
        bar1_bytes=None if device.bar1_mib is None or not device.is_gpu else int(device.bar1_mib * (1 << 20)),
    )


WORDS = (
    r"Subsystem|Control|Status|Latency|Interrupt|NUMA node|IOMMU group|Region \d|Expansion ROM|Capabilities|Bus:|"
    r"I/O behind|I/O ports|Memory behind|Memory at|Prefetchable memory|Secondary status|BridgeCtl|Kernel driver|"
    r"Kernel modules|DeviceName|Physical Slot|Flags|Address|Masking|Vector table|PBA|BAR|Product Name|Read-only|"
    r"Read/write|End|\[virtual\]|\[[A-Z0-9]{2}\] |Max (?:no )?snoop|Port Arb|Arb:|Ctrl:|Caps:|VC\d|HeaderLog|LaneErr|"
    r"ErrorSrc|First|Initial VFs|Total VFs|VF offset|Supported Page|System Page|Page Size|Region|Transmit|Compliance|"
    r"EqualizationPhase\d|Slot #|Changed|IOV\w{3}|ARI\w{3}|ACS\w{3}|Lnk\w{3}\d?|Dev\w{3}\d?|Slt\w{3}|Root\w{3}|"
    r"UE\w{2,4}|CE\w{2,3}|AERCap|MultHdr|PTM\w{3}|ATS\w{3}|PRI\w{3}|PASID\w{3}|Dpc\w{3}|L1Sub\w{3,4}\d?|TPH|Steering|"
    r"LTR1|T_\w{3}|IDO|Source|Bridge|Not readable|No steering|!!! |Kernel|VF Migration|Extended|Hyper|Command|Len=|"
    r"Queue|Notify|BaseAddr|Vendor Specific|Completion|AtomicOps\w{3}|10BitTag|Emergency|FRS|RlxdOrd|ExtTag|MaxPayload"
)
BEGIN = regex(re.sub(r"\(\?P<\w+>", "(?:", "|".join(one.pattern for one in (HEAD, ROOT, ACS, LINK))))
INSIDE = regex(
    rf"^\s*(?:{WORDS})|^\s{{1,60}}.{{0,200}}?\b[A-Za-z]\w{{1,30}}[+-](?:[\s,;]|$)|{BRANCH.pattern}|^\t(?!\s*(?:GPU|NIC)\d)|\blspci\b|^--$|^pcilib:|"
    r"^[0-9a-f]{2,3}: (?:[0-9a-f]{2} ){7,15}[0-9a-f]{2}\s*$|"
    r"^\s{1,8}\(no matching|^\s{1,8}\(could not resolve upstream"
)
# Drivers that keep that of NVIDIA from a GPU.
DRIVERS = {"nouveau": "nouveau", "vfio-pci": "vfio", "pci-stub": "vfio"}
LINK_ERRORS = frozenset({"DLP", "FCP", "RxOF", "MalfTLP", "ECRC"})


def parse(lines: list[str]) -> Part | None:
    unnamed: list[tuple[int, str]] = []
    every = merged(devices(lines, unnamed))
    tree = nodes(lines)
    bare = _controls(unnamed)
    downgraded = list(_downgraded(unnamed))
    if not every and not tree and not bare and not downgraded:
        return None
    listing = Listing(every, tree)
    gpus = [device for device in every.values() if device.is_gpu]
    for bus_id, node in tree.items():
        if bus_id not in every and IS_GPU.match(node.name) and not NO_GPU.search(node.name):
            gpus.append(Device(bus_id, name=node.name, is_gpu=True))
    gpus.sort(key=lambda gpu: gpu.bus_id)
    acs = acs_of(every.values())
    redirect = False if not acs and bare and not any(value & REDIRECTS for _, value in bare) else None
    found = [listing.gpu(gpu) for gpu in gpus]
    return Part(
        partial=True,
        facts=Facts(
            pci=tuple(_function(one, listing.path_of(one)) for one in every.values() if one.ids and one.class_id),
            observed=Observations(gpus=tuple(found), host=ObservedHost(acs=acs, acs_redirect=redirect)),
        ),
        messages=(
            *(one for gpu in gpus for one in _of_gpu(gpu)),
            *(one for gpu in gpus for one in listing.redirected_cards(gpu)),
            *_of_unnamed(bare, downgraded),
        ),
        looked_at=tuple(_looked_at(gpus, acs=len(acs), bare=len(bare))),
    )


# lspci -tv names the product and not the class. NVSwitches and their bridges have no name in brackets.
IS_GPU = regex(
    r"NVIDIA Corporation \w{2,12} \[(?:GeForce|Tesla|Quadro|RTX|NVIDIA|TITAN|[A-Z]{1,2}\d{1,4}\b)", re.IGNORECASE
)
NO_GPU = regex(r"Audio|USB|UCSI|Switch|Bridge|nForce|MCP\d|HDMI", re.IGNORECASE)


def _controls(unnamed: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Line number and value of ACS control registers whose device no line names."""
    found = ((number, ACS.search(line)) for number, line in unnamed)
    return [(number, acs_value(m["flags"])) for number, m in found if m is not None and m["which"] == "ACSCtl"]


def _of_unnamed(bare: list[tuple[int, int]], downgraded: list[tuple[int, str]]) -> Iterator[Message]:
    """Of devices that no line names: a bridge that redirects matters only above GPUs, and a link may be of anything."""
    lines = [number for number, value in bare if value & REDIRECTS]
    if lines:
        text = f"{len(lines)} of {len(bare)} ACSCtl lines have ReqRedir, CmpltRedir or EgressCtrl set"
        yield Message(key="lspci.acs-unnamed", text=text, line=lines[0])
    for number, line in downgraded[:1]:
        yield Message(key="lspci.link-unnamed", text=line.strip(), line=number)


def _downgraded(unnamed: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Links with fewer lanes than their device can use; old versions of lspci do not mark them."""
    can = 0
    for number, line in unnamed:
        link = LINK.match(line)
        if link is not None and link["which"] == "LnkCap":
            can = int(link["width"])
        elif "LnkSta:" in line and ("(downgraded)" in line or (link is not None and int(link["width"]) < can)):
            yield number, line


def _of_gpu(gpu: Device) -> Iterator[Message]:
    def message(slug: str, text: str = "") -> Message:
        return Message(key=f"lspci.{slug}", text=text or gpu.head, line=gpu.line, gpu=gpu.bus_id)

    if gpu.is_gone:
        yield message("gpu-off" if gpu.may_sleep else "gpu-gone")
        return
    if gpu.unassigned:
        yield message("bar-unassigned")
    driver = gpu.driver
    if slug := DRIVERS.get(driver or ""):
        yield message(slug, f"{gpu.head}: Kernel driver in use: {driver}")
    elif driver is None and "nvidia" in gpu.modules.replace("nvidiafb", ""):
        yield message("no-driver", f"{gpu.head}: Kernel modules: {gpu.modules}, and no driver in use")
    bad = sorted(gpu.uncorrected & LINK_ERRORS)
    if bad:
        yield message("link-errors", f"{gpu.head}: UESta: {'+ '.join(bad)}+")


def _looked_at(gpus: list[Device], *, acs: int, bare: int) -> Iterator[str]:
    linked = sum(gpu.sta_width is not None for gpu in gpus)
    if gpus:
        yield f"{counted(len(gpus), 'NVIDIA GPU')} that lspci lists"
    if linked:
        yield f"PCIe links of {counted(linked, 'GPU')}"
    if acs or bare:
        yield f"ACS registers of {counted(acs or bare, 'PCIe device')}"


KIND = Kind(
    name="lspci",
    title="the output of lspci",
    parse=parse,
    hints=("controller", "bridge", "ACSCtl", "LnkSta", "]-+-", "----", "0302: ", "0300: ", "0604: "),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE),
)
