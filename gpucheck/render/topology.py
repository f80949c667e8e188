"""A topology as nested boxes, and their drawing."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Literal, NamedTuple

import msgspec

from gpucheck.model import NVSWITCH, Finding, Nic, NvLinkBundle, PcieLink, Topology, Verdict, WiredFunction, Wiring
from gpucheck.model.finding import BUS_ID, bus_ids
from gpucheck.printable import of_printable, printable, ranges
from gpucheck.render.words import plural

BAD = (Verdict.FAIL, Verdict.WARN)
SIGN = {Verdict.FAIL: "\u00d7", Verdict.WARN: "!"}


class FaultMark(NamedTuple):
    """The worst finding about one place. cause: its key, or the check without one. links: whether NVLinks fail."""

    verdict: Verdict
    cause: str
    links: bool

    @property
    def words(self) -> str:
        """``FAIL nvlink-down``."""
        return f"{self.verdict.name} {self.cause}"


def faults(findings: Iterable[Finding]) -> dict[frozenset[str], FaultMark]:
    """Return the worst finding of each bus id, and of each pair of them."""
    found: dict[frozenset[str], FaultMark] = {}
    for finding in findings:
        place = frozenset(bus_ids(finding.subject))
        if finding.verdict not in BAD or not place:
            continue
        before = found.get(place)
        links = finding.check.startswith("nvlink") or bool(before and before.links)
        if before is None or BAD.index(finding.verdict) < BAD.index(before.verdict):
            found[place] = FaultMark(finding.verdict, finding.cause or finding.check, links)
        else:
            found[place] = before._replace(links=links)
    return found


class Absent(NamedTuple):
    """A GPU that the host has and the topology has not. number: its index, None if unknown."""

    number: int | None
    bus_id: str
    fault: FaultMark

    @property
    def name(self) -> str:
        """As in the topology: ``GPU3``."""
        return "GPU" if self.number is None else f"GPU{self.number}"


def absent(topology: Topology, findings: Iterable[Finding]) -> list[Absent]:
    """Return each GPU that fails and that the topology does not contain: a lost one."""
    known = {gpu.pci_bus_id for gpu in topology.gpus}
    found: dict[str, Absent] = {}
    for finding in findings:
        if not finding.subject.startswith("gpu:") or finding.verdict not in BAD:
            continue
        (bus_id,) = bus_ids(finding.subject)
        if bus_id not in known and BUS_ID.fullmatch(bus_id):
            fault = FaultMark(finding.verdict, finding.cause or finding.check, links=False)
            found.setdefault(bus_id, Absent(finding.gpu_index, bus_id, fault))
    return list(found.values())


VENDOR = {"GenuineIntel": "Intel", "intel": "Intel", "AuthenticAMD": "AMD", "amd": "AMD"}


@dataclass
class Box:
    """title: what it is. name: of the model or device. detail: where it is. link: its PCIe link as text, with what it
    should be if it runs below that (reduced). use: of a network card. Each is empty if unknown. fault: the worst
    finding about it."""

    kind: Literal["node", "root", "switch", "gpu", "nic"]
    title: str
    name: str = ""
    detail: str = ""
    link: str = ""
    reduced: bool = False
    use: str = ""
    inside: list["Box"] = field(default_factory=list)
    fault: FaultMark | None = None


def heading(topology: Topology, findings: Iterable[Finding] = ()) -> str:
    """How many GPUs, and of which model where it is one. findings: that can name GPUs which are not usable."""
    names, count = {gpu.name for gpu in topology.gpus}, len(topology.gpus)
    model = names.pop() if len(names) == 1 else None
    lost = len(absent(topology, findings)) if count else 0
    more = f", {lost} not usable" if lost else ""
    return (f"{count} x {model}" if model else plural(count, "GPU")) + more


def boxes(topology: Topology, findings: Iterable[Finding] = ()) -> list[Box]:
    """The NUMA nodes of a topology with all that is in them; nothing without a wiring.

    findings: about what is drawn; GPUs that only they name come last. Ports are left out: what a port's link can do is
    written at the device below it. The name of GPUs that are all of one model is left to the heading.
    """
    wiring = topology.wiring
    if wiring is None:
        return []
    one_model = len({gpu.name for gpu in topology.gpus}) == 1
    names = {f"GPU{gpu.index}": "" if one_model else gpu.name or "" for gpu in topology.gpus}
    names |= {nic.label: nic.name or "" for nic in topology.nics}
    uses = {nic.label: _use(nic) for nic in topology.nics if nic.role}
    children: dict[str | None, list[WiredFunction]] = {}
    for function in wiring.functions:
        children.setdefault(function.above, []).append(function)
    findings = tuple(findings)
    found = {next(iter(place)): fault for place, fault in faults(findings).items() if len(place) == 1}
    boxes = []
    for node in wiring.nodes:
        unnumbered = "host" if len(wiring.nodes) == 1 else "NUMA node unknown"
        title = unnumbered if node.index is None else f"NUMA node {node.index}"
        vendor = VENDOR.get(node.vendor or "", node.vendor or "")
        detail = ", ".join(word for word in (vendor, f"CPUs {node.cpus}" if node.cpus else "") if word)
        box = Box("node", title, detail=detail)
        top = [f for f in children.get(None, []) if f.numa_node == node.index]
        for root in dict.fromkeys(function.root for function in top):
            below = [b for f in top if f.root == root for b in _box(f, children, names, uses, found, wiring.told)]
            box.inside += [Box("root", f"host bridge {root}", inside=below)] if root and below else below
        if box.inside:
            boxes.append(box)
    lost = [Box("gpu", gpu.name, detail=gpu.bus_id, fault=gpu.fault) for gpu in absent(topology, findings)]
    return [*boxes, Box("node", "not usable", inside=lost)] if lost else boxes


def _box(
    function: WiredFunction,
    children: dict[str | None, list[WiredFunction]],
    names: dict[str, str],
    uses: dict[str, str],
    found: dict[str, FaultMark],
    known: bool,
) -> list[Box]:
    below = [b for child in children.get(function.bus_id, []) for b in _box(child, children, names, uses, found, known)]
    fault = found.get(function.bus_id)
    words, reduced = link_words(function.link, uplink=function.kind == "switch-upstream")
    if function.kind in ("gpu", "nic"):
        detail = function.bus_id if known else ""
        name = names.get(function.label, "")
        kind: Literal["gpu", "nic"] = "gpu" if function.kind == "gpu" else "nic"
        name, use = name if name != function.label else "", uses.get(function.label, "")
        return [Box(kind, function.label, name, detail, words, reduced, use, fault=fault)]
    if function.kind == "switch-upstream" and below:
        return [
            Box(
                "switch", "PCIe switch", "", function.bus_id if known else "", words, reduced, inside=below, fault=fault
            )
        ]
    return below


def _use(nic: Nic) -> str:
    """Return ``compute: 400 Gb/s``, with the state of each port that is not active."""
    ports = (
        f"{port.rate_gbit_s:g} Gb/s" if port.is_active and port.rate_gbit_s is not None else port.state or "unknown"
        for port in nic.ports
    )
    return ": ".join(filter(None, (nic.role, ", ".join(ports))))


def link_words(link: PcieLink, *, uplink: bool) -> tuple[str, bool]:
    """Return ``Gen5 x16``, or ``Gen5 x8 of x16`` for a link that lost lanes, and whether it lost lanes or speed.

    The generation of a device's own link is that of its maximum: an idle link lowers it.
    """
    generation, width = link.max_generation or link.generation, link.max_width or link.width
    if not generation or not width:
        return "", False
    lanes = link.width is not None and link.max_width is not None and link.width < link.max_width
    slow = uplink and bool(link.generation and link.max_generation and link.generation < link.max_generation)
    speed = f"Gen{link.generation} of Gen{generation}" if slow else f"Gen{generation}"
    return f"{speed} x{link.width} of x{width}" if lanes else f"{speed} x{width}", lanes or slow


def describe_link(generation: int | None, width: int | None) -> str:
    """Return ``Gen5 x16``; empty if neither is known."""
    return f"Gen{generation or '?'} x{width or '?'}" if generation or width else ""


def direct_links(wiring: Wiring) -> list[NvLinkBundle]:
    return [bundle for bundle in wiring.nvlinks if bundle.b.startswith("GPU")]


def switch_links(wiring: Wiring) -> dict[str, int]:
    """By GPU label, how many links lead to NVSwitches."""
    totals: dict[str, int] = {}
    for bundle in wiring.nvlinks:
        if not bundle.b.startswith("GPU"):
            totals[bundle.a] = totals.get(bundle.a, 0) + bundle.links
    return totals


def describe_switches(wiring: Wiring) -> str:
    """Return ``4 NVSwitches``; ``NVSwitch`` if their number is unknown, as they hide behind one address."""
    count = len({b.b for b in wiring.nvlinks if not b.b.startswith("GPU") and b.b != NVSWITCH})
    return f"{count} NVSwitch{'es' if count != 1 else ''}" if count else "NVSwitch"


BOLD, LIGHT = 0.64, 0.56
"""Width of an average character of a sans-serif face, in ems."""


class Point(NamedTuple):
    """In user units, y downwards."""

    x: float
    y: float


def element(tag: str, *inside: str, **attributes: object) -> str:
    """One element; ``class_`` is class, underscores become hyphens. inside: markup, already made by this module."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{given}/>"


def document(width: float, height: float, title: str, *inside: str) -> str:
    """The SVG element of a page, which has the rules for its classes (pages/drawing.css)."""
    return element(
        "svg",
        element("title", plain(title)),
        element("rect", width="100%", height="100%", class_="paper"),
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
    )


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else printable(str(value))


def width_of(words: str, size: int, *, bold: bool = False) -> float:
    """About how wide a line of text is."""
    return len(words) * size * (BOLD if bold else LIGHT)


def text(
    words: str, at: Point, size: int, *, room: float | None = None, bold: bool = False, **attributes: object
) -> str:
    """A line of text, cut with an ellipsis where it would be wider than `room`; hovering then shows it whole."""
    shown, title = words, ""
    if room is not None and width_of(words, size, bold=bold) > room:
        shown = words[: max(1, int(room / width_of("x", size, bold=bold)) - 1)] + "…"
        title = element("title", plain(words))
    return element(
        "text", plain(shown), title, x=at.x, y=at.y, font_size=size, font_weight="bold" if bold else None, **attributes
    )


def plain(words: str) -> str:
    """Words as content of an element."""
    return escape(printable(words), quote=False)


def around(center: Point, radius: float, count: int) -> list[Point]:
    """`count` points on a circle, the first one at the top, clockwise."""
    angles = (2 * math.pi * n / count - math.pi / 2 for n in range(count))
    return [Point(center.x + radius * math.cos(a), center.y + radius * math.sin(a)) for a in angles]


class Size(NamedTuple):
    """Of a box."""

    width: float
    height: float


def flow(sizes: Iterable[Size], room: float, gap: float) -> tuple[list[Point], Size]:
    """Places boxes left to right and starts a new line where the next would be wider than `room`.

    The places, relative to a common corner, and the size of the whole.
    """
    places: list[Point] = []
    x = y = line = widest = 0.0
    for size in sizes:
        if x and x + size.width > room:
            x, y, line = 0.0, y + line + gap, 0.0
        places.append(Point(x, y))
        x, line = x + size.width + gap, max(line, size.height)
        widest = max(widest, x - gap)
    return places, Size(widest, y + line)


PAGE, MARGIN, GAP, PAD, HEAD, STEP = 1240.0, 24.0, 10.0, 8.0, 20.0, 17.0
LEAF = Size(128.0, 58.0)
FAULT = 19.0
"""Height of the line that a fault adds to a box."""
SMALL, NORMAL, LARGE = 11, 13, 18
NARROWEST, WIDEST = 640.0, 260.0
ROW = 20.0
TONE = {Verdict.FAIL: "bad", Verdict.WARN: "caution"}
MANY = 24
"""GPUs; above that they are smaller and spokes thinner."""


@of_printable
def to_svg(topology: Topology, *, about: str = "", findings: Iterable[Finding] | None = None) -> str:
    """The whole drawing. about: what is simulated.

    findings: of the report that the topology is part of; without, those of the topology.
    """
    findings = topology.findings if findings is None else tuple(findings)
    tree = boxes(topology, findings)
    places, whole = flow((_size(box) for box in tree), PAGE, GAP)
    inner = max(whole.width, NARROWEST)
    parts, y = _heading(topology, heading(topology, findings), about, inner)
    parts += [_draw(b, Point(MARGIN + p.x, y + p.y)) for b, p in zip(tree, places, strict=True)]
    y += whole.height + (ROW if tree else 0)
    if topology.wiring is not None and topology.wiring.nvlinks:
        drawn, height = _nvlinks(topology, topology.wiring, faults(findings), Point(MARGIN, y), inner - 46)
        parts.append(drawn)
        y += height
    elif len(topology.gpus) > 1:
        parts.append(text("No NVLink between these GPUs.", Point(MARGIN, y + NORMAL), NORMAL, class_="soft"))
        y += ROW
    width, height = inner + 2 * MARGIN, y + MARGIN
    return document(width, height, heading(topology), *parts)


def _heading(topology: Topology, title: str, about: str, room: float) -> tuple[list[str], float]:
    y = MARGIN + LARGE
    parts = [text(title, Point(MARGIN, y), LARGE, bold=True, room=room)]
    notes = [plural(len(topology.nics), "network card"), f"source: {topology.source}"]
    if topology.wiring is not None and not topology.wiring.told:
        notes.append("boxes worked out from the path classes: switches by PIX, nodes by NUMA affinity")
    y += ROW
    parts.append(text("; ".join(notes), Point(MARGIN, y), NORMAL, class_="soft"))
    if topology.simulated:
        y += ROW
        words = f"SIMULATED {about}: no real GPU was read".replace(" :", ":")
        parts.append(text(words, Point(MARGIN, y), NORMAL, class_="bad", bold=True, room=room))
    return parts, y + ROW


def _size(box: Box) -> Size:
    if box.kind in ("gpu", "nic"):
        wanted = width_of(f"{box.title} {box.name}".rstrip(), NORMAL, bold=True) + 2 * PAD
        if box.fault:
            wanted = max(wanted, width_of(_marked(box.fault), SMALL, bold=True) + 2 * PAD)
        wanted = max(wanted, width_of(box.use, SMALL) + 2 * PAD)
        return Size(min(max(LEAF.width, wanted), WIDEST), LEAF.height + FAULT * (bool(box.fault) + bool(box.use)))
    _, inner = flow((_size(inside) for inside in box.inside), _room(box), GAP)
    titles = max(width_of(words, size, bold=class_ != "soft") for words, class_, size in _words(box))
    width = max(inner.width, min(titles, WIDEST))
    return Size(width + 2 * PAD, inner.height + HEAD * _lines(box) + 2 * PAD)


def _lines(box: Box) -> int:
    return (2 if box.detail or box.link else 1) + bool(box.fault)


def _room(box: Box) -> float:
    return PAGE - 2 * PAD * {"node": 1, "root": 2, "switch": 3}.get(box.kind, 4)


def _draw(box: Box, at: Point) -> str:
    size = _size(box)
    classes = f"box {box.kind}" + (" reduced" if box.reduced else "")
    classes += f" {box.fault.verdict.value}" if box.fault else ""
    parts = [element("rect", x=at.x, y=at.y, width=size.width, height=size.height, rx=6, class_=classes)]
    y = at.y + PAD + SMALL
    for words, class_, points in _words(box):
        place = Point(at.x + PAD, y)
        bold = class_ != "soft"
        parts.append(text(words, place, points, room=size.width - 2 * PAD + 2, bold=bold, class_=class_ or None))
        y += STEP
    places, _ = flow((_size(inside) for inside in box.inside), _room(box), GAP)
    top = at.y + PAD + HEAD * _lines(box)
    for inside, place in zip(box.inside, places, strict=True):
        parts.append(_draw(inside, Point(at.x + PAD + place.x, top + place.y)))
    return element("g", *parts)


def _words(box: Box) -> Iterator[tuple[str, str, int]]:
    yield from _description(box)
    if box.fault:
        yield _marked(box.fault), TONE[box.fault.verdict], SMALL


def _marked(fault: FaultMark) -> str:
    return f"{SIGN[fault.verdict]} {fault.words}"


def _description(box: Box) -> Iterator[tuple[str, str, int]]:
    tone = "bad" if box.reduced else "soft"
    if box.kind == "root":
        yield box.title, "soft", SMALL
    elif box.kind in ("gpu", "nic"):
        yield f"{box.title} {box.name}".rstrip(), "", NORMAL
        lines = ((box.detail, "soft"), (box.link, tone), (box.use, "soft"))
        yield from ((words, class_, SMALL) for words, class_ in lines if words)
    else:
        yield box.title, "", NORMAL
        if box.detail or box.link:
            yield ", ".join(filter(None, (box.detail, box.link))), tone, SMALL


def _nvlinks(
    topology: Topology, wiring: Wiring, found: dict[frozenset[str], FaultMark], at: Point, room: float
) -> tuple[str, float]:
    """GPUs on a circle; direct links as chords, links to switches as spokes. Returns what is drawn and its height.

    found: faults of GPUs and pairs; their links are dashed and red.
    """
    indexes = [gpu.index for gpu in topology.gpus]
    ids = {f"GPU{gpu.index}": gpu.pci_bus_id or "" for gpu in topology.gpus}

    def fault(*labels: str) -> FaultMark | None:
        return found.get(frozenset(ids.get(label, "") for label in labels))

    def links_fail(*labels: str) -> bool:
        return any((one := fault(label)) is not None and one.links for label in labels) or (
            len(labels) > 1 and fault(*labels) is not None
        )

    known = {f"GPU{i}" for i in indexes}  # a report of another host may name others
    links = (b for b in wiring.nvlinks if b.a in known and (b.b in known or not b.b.startswith("GPU")))
    wiring = msgspec.structs.replace(wiring, nvlinks=tuple(links))
    totals, direct, many = switch_links(wiring), direct_links(wiring), len(indexes) > MANY
    broken = any(links_fail(label) for label in totals) or any(links_fail(b.a, b.b) for b in direct)
    legend = _legend(wiring, Point(at.x, at.y + ROW + NORMAL), room, broken=broken)
    radius = max(60.0 + 11.0 * min(len(indexes), 16), 4.2 * len(indexes))
    dot = 9.5 if many else 17.0
    top = at.y + ROW + NORMAL + ROW * len(legend)
    center = Point(at.x + radius + dot, top + radius + dot)
    points = dict(zip((f"GPU{i}" for i in indexes), around(center, radius, len(indexes)), strict=True))
    parts = [text("NVLink", Point(at.x, at.y + NORMAL), NORMAL + 2, bold=True), *legend]
    parts += [_line(points[label], center, 1.5 if many else 3.0, bad=links_fail(label)) for label in totals]
    parts += [
        _line(points[b.a], points[b.b], _stroke(b.links), f"{b.a} - {b.b}: {b.links} NVLinks", bad=links_fail(b.a, b.b))
        for b in direct
    ]
    if totals:
        parts += _hub(center, describe_switches(wiring))
    size = 9 if many else NORMAL
    for label, point in points.items():
        marked = fault(label)
        about = [element("title", plain(f"{label}: {marked.words}"))] if marked else []
        kind = f" {marked.verdict.value}" if marked else ""
        parts.append(element("circle", *about, cx=point.x, cy=point.y, r=dot, class_=f"box gpu{kind}"))
        sign = SIGN[marked.verdict] if marked and not many else ""
        parts.append(
            text(f"{sign}{label[3:]}", Point(point.x, point.y + size * 0.36), size, text_anchor="middle", bold=True)
        )
    return element("g", *parts), top + 2 * (radius + dot) - at.y


def _stroke(links: int) -> float:
    return min(1.5 + 2.5 * (links - 1), 14.0) if links < 4 else min(6.0 + links / 2, 14.0)


def _line(a: Point, b: Point, width: float, title: str = "", *, bad: bool = False) -> str:
    inside = [element("title", plain(title))] if title else []
    kind = "link broken" if bad else "link"
    return element("line", *inside, x1=a.x, y1=a.y, x2=b.x, y2=b.y, stroke_width=width, class_=kind)


def _hub(center: Point, words: str) -> list[str]:
    box = element("rect", x=center.x - 58, y=center.y - 17, width=116, height=34, rx=8, class_="hub")
    return [box, text(words, Point(center.x, center.y + 5), NORMAL, text_anchor="middle", bold=True)]


def _legend(wiring: Wiring, at: Point, room: float, *, broken: bool) -> list[str]:
    totals, direct = switch_links(wiring), direct_links(wiring)
    kinds: list[tuple[float, str]] = []
    for count in sorted(set(totals.values()), reverse=True):
        members = sorted(int(label[3:]) for label, links in totals.items() if links == count)
        kinds.append((3.0, f"{count} NVLinks from GPU {ranges(members)} to the switches: NV{count} between any two"))
    for count in sorted({bundle.links for bundle in direct}, reverse=True):
        pairs = ", ".join(f"{b.a[3:]}-{b.b[3:]}" for b in direct if b.links == count)
        kinds.append((_stroke(count), f"NV{count}: {plural(count, 'link')} each between {pairs}"))
    lines = [(width, words, False) for width, words in kinds]
    lines += [(3.0, "links of a GPU or pair with a finding", True)] if broken else []
    return [
        _line(Point(at.x, y - 4), Point(at.x + 36, y - 4), width, bad=bad)
        + text(words, Point(at.x + 46, y), NORMAL, room=room)
        for y, (width, words, bad) in ((at.y + ROW * n, line) for n, line in enumerate(lines))
    ]
