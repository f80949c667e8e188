"""Output of lspci: lists (-nn, -k), registers (-vv, -vvv) and trees (-t, -tv), alone or several in a row.

Its facts about GPUs are part of a host, not all of it: lspci -s lists one device, and a list holds GPUs that the
driver does not. So its part is marked as partial.
"""

import re
from collections.abc import Iterator

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports.pci._devices import HEAD, Device, devices, merged
from gpucheck.imports.pci._observed import acs_of, functions, gpu_of, redirected_cards
from gpucheck.imports.pci._registers import ACS, LINK, REDIRECTS, acs_value
from gpucheck.imports.pci._tree import BRANCH, ROOT, Node, nodes
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.diagnosis.paste import Message, Part
from gpucheck.printable import counted

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
BEGIN = re.compile(re.sub(r"\(\?P<\w+>", "(?:", "|".join(one.pattern for one in (HEAD, ROOT, ACS, LINK))))
INSIDE = re.compile(
    rf"^\s*(?:{WORDS})|^\s{{1,60}}.{{0,200}}?\b[A-Za-z]\w{{1,30}}[+-](?:[\s,;]|$)|{BRANCH.pattern}|^\t(?!\s*(?:GPU|NIC)\d)|\blspci\b|^--$|^pcilib:|"
    r"^[0-9a-f]{2,3}: (?:[0-9a-f]{2} ){7,15}[0-9a-f]{2}\s*$|"
    r"^\s{1,8}\(no matching|^\s{1,8}\(could not resolve upstream"
)
LINK_ERRORS = frozenset({"DLP", "FCP", "RxOF", "MalfTLP", "ECRC"})


def parse(lines: list[str]) -> Part:
    """Devices, their links and trees. Raises ImportProblem, and nothing else."""
    unnamed: list[tuple[int, str]] = []
    every = merged(devices(lines, unnamed))
    tree = nodes(lines)
    bare = _controls(unnamed)
    downgraded = [(number, line) for number, line in unnamed if "LnkSta:" in line and "(downgraded)" in line]
    if not every and not tree and not bare and not downgraded:
        raise absent("PCI device", "no line names a device as lspci does", "Give all of it: sudo lspci -vvv")
    gpus = [device for device in every.values() if device.is_gpu]
    _add_from_tree(gpus, every, tree)
    gpus.sort(key=lambda gpu: gpu.bus_id)
    acs = acs_of(every.values())
    redirect = False if not acs and bare and not any(value & REDIRECTS for _, value in bare) else None
    found = [gpu_of(gpu, every, tree) for gpu in gpus]
    return Part(
        partial=True,
        observations=Observations(gpus=tuple(found), host=ObservedHost(acs=acs, acs_redirect=redirect)),
        pci=functions(every.values(), every, tree),
        messages=(
            *(one for gpu in gpus for one in _of_gpu(gpu)),
            *_of_cards(gpus, every, tree),
            *_of_unnamed(bare),
            *_of_links(downgraded),
        ),
        looked_at=tuple(_looked_at(gpus, acs=len(acs), bare=len(bare))),
    )


def _add_from_tree(gpus: list[Device], every: dict[str, Device], tree: dict[str, Node]) -> None:
    """GPUs that only the tree names (-tv)."""
    for bus_id, node in tree.items():
        if bus_id not in every and IS_GPU.match(node.name) and not NO_GPU.search(node.name):
            gpus.append(Device(bus_id, name=node.name, is_gpu=True))


# lspci -tv names the product and not the class. NVSwitches and their bridges have no name in brackets.
IS_GPU = re.compile(
    r"NVIDIA Corporation \w{2,12} \[(?:GeForce|Tesla|Quadro|RTX|NVIDIA|TITAN|[A-Z]{1,2}\d{1,4}\b)", re.IGNORECASE
)
NO_GPU = re.compile(r"Audio|USB|UCSI|Switch|Bridge|nForce|MCP\d|HDMI", re.IGNORECASE)


def _controls(unnamed: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Line number and value of ACS control registers whose device no line names."""
    found = ((number, ACS.search(line)) for number, line in unnamed)
    return [(number, acs_value(m["flags"])) for number, m in found if m is not None and m["which"] == "ACSCtl"]


def _of_unnamed(bare: list[tuple[int, int]]) -> Iterator[Message]:
    """A bridge that redirects matters only above GPUs, and the text does not show whether this one is."""
    lines = [number for number, value in bare if value & REDIRECTS]
    if lines:
        text = f"{len(lines)} of {len(bare)} ACSCtl lines have ReqRedir, CmpltRedir or EgressCtrl set"
        yield Message(key="lspci.acs-unnamed", text=text, line=lines[0])


def _of_links(downgraded: list[tuple[int, str]]) -> Iterator[Message]:
    """A link below what its ends can do, of a device that no line names."""
    for number, line in downgraded[:1]:
        yield Message(key="lspci.link-unnamed", text=line.strip(), line=number)


def _of_cards(gpus: list[Device], every: dict[str, Device], tree: dict[str, Node]) -> Iterator[Message]:
    """Bridges that redirect between a GPU and a network card for RDMA below the same switch."""
    for gpu in gpus:
        for card, bridges in redirected_cards(gpu, every, tree):
            text = f"{', '.join(bridges)} redirect between GPU {gpu.bus_id} and {card.head}"
            yield Message(key="lspci.acs-network", text=text, line=card.line, gpu=gpu.bus_id)


def _of_gpu(gpu: Device) -> Iterator[Message]:
    def message(slug: str, text: str = "") -> Message:
        return Message(key=f"lspci.{slug}", text=text or gpu.head, line=gpu.line, gpu=gpu.bus_id)

    if gpu.is_gone:
        yield message("gpu-off" if gpu.may_sleep else "gpu-gone")
        return
    if gpu.seen.unassigned:
        yield message("bar-unassigned")
    if gpu.seen.driver == "nouveau":
        yield message("nouveau", f"{gpu.head}: Kernel driver in use: nouveau")
    elif gpu.seen.driver in ("vfio-pci", "pci-stub"):
        yield message("vfio", f"{gpu.head}: Kernel driver in use: {gpu.seen.driver}")
    elif gpu.seen.driver is None and "nvidia" in gpu.seen.modules.replace("nvidiafb", ""):
        yield message("no-driver", f"{gpu.head}: Kernel modules: {gpu.seen.modules}, and no driver in use")
    bad = sorted(gpu.seen.uncorrected & LINK_ERRORS)
    if bad:
        yield message("link-errors", f"{gpu.head}: UESta: {'+ '.join(bad)}+")


def _looked_at(gpus: list[Device], *, acs: int, bare: int) -> Iterator[str]:
    linked = sum(gpu.seen.sta_width is not None for gpu in gpus)
    if gpus:
        yield f"{counted(len(gpus), 'NVIDIA GPU')} that lspci lists"
    if linked:
        yield f"PCIe links of {counted(linked, 'GPU')}"
    if acs or bare:
        yield f"ACS registers of {acs or bare} PCIe devices"


KIND = Kind(
    name="lspci",
    title="the output of lspci",
    parse=parse,
    hints=("controller", "bridge", "ACSCtl", "LnkSta", "]-+-", "----", "0302: ", "0300: ", "0604: "),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE),
)
