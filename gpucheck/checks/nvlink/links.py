"""NVLink: is every link up that this GPU model has?

Sources: nvmlDeviceGetNvLinkState for every port, against the links of the model in the GPU table (12 of 18 ports is
normal on H100 NVL and PCIe); NvLinkDisable in /proc/driver/nvidia/params. A missing link of 18 costs 5.6 % bandwidth,
which a measurement does not distinguish from noise, so the count is evaluated by itself.

Providers switch NVLink off for guests with one GPU, and NVML then reports no link as if the GPU had none. So links that
are all missing are a fault only where the host has a peer to reach and no hypervisor.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpucheck.checks._case import Case, observed
from gpucheck.checks._machine import FASTEST_SLOT, Machine, Pair
from gpucheck.checks._nvml import about, evidence, gaps_of, not_reported, quick_check, with_gpus
from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEPRECATED, NOT_IN_LIBRARY, Finding, Gpu, NvmlReading, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.finding import FOUND, Confidence
from gpucheck.printable import counted
from gpucheck.topology.wiring import PARAMS, PAST, STATE_CALL, nvlink_limit

NAME = "nvlink"
COUNTED = "nvlink-links"  # the name under which links that tools counted are reported
FOUR_WAY = 12  # links of cards that come with a four-way bridge too, half of them to each neighbor
SWITCHED_OFF = "NvLinkDisable: 1"


class Ports(NamedTuple):
    """NVLinks of one GPU. up: active ports, of those listed. wanted: by the model, None where that is not known.

    down, asleep: numbers of the other ports, empty where a tool printed counts only; then there is no gpu either.
    """

    subject: Subject
    name: str
    model: GpuModel | None
    up: int
    listed: int
    wanted: int | None
    down: tuple[int, ...] = ()
    asleep: tuple[int, ...] = ()
    gpu: Gpu | None = None

    @property
    def bridged(self) -> bool:
        """Whether the model has its links only through a bridge, which a host need not have."""
        return bool(self.model and self.model.nvlink and self.model.nvlink.bridge)


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """One finding a GPU with NVLink, one for both ends of inactive links; one SKIP for a host without."""
    limit = nvlink_limit(facts.texts[PARAMS])
    every = [_ports(gpu, limit) for gpu in nvml.gpus]
    linked = [ports for ports in every if ports.up or ports.wanted or (ports.wanted is None and ports.listed)]
    if not linked:
        yield Subject(check=NAME).skips("nvlink.no-nvlink")
    elif limit == 0 and not any(ports.up for ports in linked):
        yield Subject(check=NAME, evidence=(f"{PARAMS}: {SWITCHED_OFF}",)).skips("nvlink.switched-off")
    else:
        virtual, gpus = facts.system.virtual, len(nvml.gpus)
        found = [(ports, _refused(ports, nvml) or state(ports, linked, virtual, gpus=gpus)) for ports in linked]
        yield from _one_per_link(found)
        short = [ports for ports in linked if 0 < ports.up < (ports.wanted or 0)]
        yield from filter(None, map(_mode, short))


def state(ports: Ports, every: Sequence[Ports], virtual: str | bool | None, *, gpus: int) -> Finding:
    """Return the finding about the links of one GPU, of all on the host that have some.

    virtual: a hypervisor may have taken links away. gpus: of the host; one alone has no use for links.
    """
    others = [other for other in every if other is not ports]
    if ports.wanted is None and ports.up < ports.listed:
        return ports.subject.unknown("nvlink.model-unknown", ports.up, model=ports.name or "the model")
    if ports.wanted is None:
        return ports.subject.passes(ports.up)
    if ports.up >= ports.wanted:
        return _mode(ports) or ports.subject.passes(ports.up)
    dark = bool(virtual) and gpus > 1 and not any(one.up for one in every)
    if ports.up == 0 and ports.bridged and not (dark and ports.listed and _is_sold_bridged(ports.name)):
        return ports.subject.skips("nvlink.no-bridge", 0, ports.wanted)
    if ports.up == 0 and gpus == 1:
        return ports.subject.skips("nvlink.one-gpu", 0, ports=ports.listed)
    if dark:
        if ports.listed:  # seen on a guest that was to have them, and had them after a reboot (azhpc-images#443)
            return ports.subject.unknown("nvlink.guest-without-active", 0, ports=ports.listed, virtual=virtual)
        return ports.subject.skips("nvlink.guest-without-nvlink", 0, virtual=virtual)
    if ports.asleep and ports.up + len(ports.asleep) >= ports.wanted:
        return ports.subject.warns("nvlink.links-asleep", ports.up, ports.wanted, asleep=ports.asleep)
    certain = not virtual or any(other.up >= (other.wanted or 0) > 0 for other in others)
    return _short(ports, ports.wanted, "certain" if certain else "likely")


def _short(ports: Ports, wanted: int, confidence: Confidence) -> Finding:
    fails, model = ports.subject.fails, ports.model.name if ports.model else ports.name
    if not ports.up and ports.listed:
        return fails("nvlink.none-active", 0, wanted, ports=ports.listed, model=model, links=wanted)
    if not ports.up:
        return fails("nvlink.none-listed", 0, wanted, model=model, links=wanted)
    if ports.listed < wanted:
        code = "topology.bridge-nvlinks-not-listed" if ports.bridged else "topology.nvlinks-not-listed"
        return fails(code, ports.up, wanted, model=model, expected=wanted, listed=ports.listed)
    if ports.gpu is None:
        code, lost = "links.nvlinks-lost", wanted - ports.up
        return fails(code, ports.up, wanted, confidence=confidence, lost=lost, total=wanted)
    code = "topology.bridge-nvlinks-inactive" if ports.bridged else "topology.nvlinks-inactive"
    return fails(code, ports.up, wanted, confidence=confidence, model=model, links=ports.down)


def _ports(gpu: Gpu, limit: int | None = None) -> Ports:
    """Return the ports of a GPU. limit: how many links a driver option allows."""
    model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
    asleep = tuple(link.link for link in gpu.nvlinks if link.state == "asleep")
    down = tuple(link.link for link in gpu.nvlinks if not link.active and link.link not in asleep)
    up, listed, wanted = gpu.active_nvlinks, len(gpu.nvlinks), _of_model(model)
    inactive = f"inactive: {_numbers(down) or 'none'}{f', asleep: {_numbers(asleep)}' if asleep else ''}"
    subject = about(NAME, gpu, f"{STATE_CALL}: {up} of {listed} ports active, {inactive}", unit="NVLinks")
    wanted = min(wanted, limit) if wanted is not None and limit else wanted
    return Ports(subject, gpu.name, model, up, listed, wanted, down, asleep, gpu)


def _of_model(model: GpuModel | None) -> int | None:
    return (model.nvlink.links if model.nvlink else 0) if model else None


def _one_per_link(found: Sequence[tuple[Ports, Finding]]) -> Iterator[Finding]:
    """Yield the findings, those of two GPUs as one if their inactive links can only be between these two.

    NVML names no far end of an inactive link. But on a board without NVSwitch each link has its ends on two GPUs.
    """
    short = [(ports, finding) for ports, finding in found if finding.cause == "nvlink-down"]
    kinds = {link.remote_kind for ports, _ in found if ports.gpu for link in ports.gpu.nvlinks if link.active}
    if len(short) != 2 or kinds != {"gpu"} or len(short[0][0].down) != len(short[1][0].down):
        yield from (finding for _, finding in found)
        return
    (one, first), (other, second) = short
    name = f"pair:{'-'.join(end.subject.name.removeprefix('gpu:') for end in (one, other))}"
    lines = tuple(dict.fromkeys((*first.evidence, *second.evidence)))
    subject = Subject(check=NAME, name=name, unit=first.unit, evidence=lines)
    code = "topology.bridge-link-ends-inactive" if one.bridged else "topology.link-ends-inactive"
    values: dict[str, Any] = {"confidence": first.confidence, "links": one.down, "peer_links": other.down}
    both = subject.fails(code, first.seen, first.wanted, **values)
    yield from (both if finding is first else finding for _, finding in found if finding is not second)


def _numbers(links: Sequence[int]) -> str:
    return ", ".join(map(str, links))


def _refused(ports: Ports, nvml: NvmlReading) -> Finding | None:
    if ports.gpu is None or ports.up >= (ports.wanted or ports.up + 1):
        return None
    gap = next((gap for gap in gaps_of(nvml, ports.gpu, STATE_CALL) if gap.code not in PAST), None)
    if gap is not None and gap.code in (NOT_IN_LIBRARY, DEPRECATED):  # the model has NVLink, so this is no SKIP
        subject = about(NAME, ports.gpu, evidence(gap))
        return subject.unknown("nvlink.state-not-offered", call=gap.call, nvml_code=gap.code)
    return not_reported(NAME, nvml, ports.gpu, STATE_CALL, what="NVLink state") if gap is not None else None


def _mode(ports: Ports) -> Finding | None:
    mode = ports.gpu.health.nvlink_bandwidth if ports.gpu else None
    if mode in (None, "full"):
        return None
    return ports.subject.warns("nvlink.bandwidth-limited", f"NVLink bandwidth mode {mode}", "full")


def rule(case: Case) -> Iterator[Finding]:
    """Lost links, links that are not used by design and an uneven matrix."""
    m = case.machine
    every = [_counted(m, i) for i in range(m.count) if m.gpu(i).nvlinks.active is not None]
    states = [(ports, state(ports, every, m.host.virtual, gpus=m.count)) for ports in every]
    lost = [finding for _, finding in states if finding.verdict in FOUND]
    yield from lost
    # Of GPUs without a model and without an active link there is one finding for all.
    yield from (one for ports, one in states if one.verdict is Verdict.UNKNOWN and (ports.name or ports.up))
    # GPUs without any NVLink up: a fault on a board with NVSwitches, normal without a bridge.
    dark = [gpu for gpu in m.seen.gpus if gpu.nvlinks.total and gpu.nvlinks.active == 0 and gpu.model is None]
    if dark:
        seen = f"0 of {dark[0].nvlinks.total} NVLinks up on {counted(len(dark), 'GPU')}"
        yield observed(COUNTED).unknown("links.nvlinks-dark", seen)
    yield from _by_design(m)
    if not lost and m.pairs and len({gpu.model for gpu in m.seen.gpus}) == 1:
        yield from _uneven(m)


def _counted(m: Machine, i: int) -> Ports:
    """Return the ports of a GPU as a tool counted them. That a text lists fewer than the model has proves nothing."""
    gpu, model = m.gpu(i), m.models[i]
    up, listed, wanted = gpu.nvlinks.active or 0, gpu.nvlinks.total or 0, _of_model(model)
    wanted = min(wanted, listed) if wanted is not None and listed else wanted
    subject = Subject(
        check=COUNTED, name=m.gpu_label(i), unit="NVLinks", evidence=(f"active {up}, ports {gpu.nvlinks.total}",)
    )
    return Ports(subject, gpu.model or "", model, up, listed, wanted)


def _by_design(m: Machine) -> Iterator[Finding]:
    for i, gpu in enumerate(m.seen.gpus):
        active, total, wanted = gpu.nvlinks.active, gpu.nvlinks.total, _of_model(m.models[i])
        if active and total and wanted and wanted <= active < total:
            values = {"model": gpu.model, "ports": total, "active": active}
            yield observed(COUNTED, unit="links").explains("links.nvlinks-by-design", active, wanted, **values)
            break
    bare = [
        i
        for i in range(m.count)
        if m.gpu(i).nvlinks.active == 0 and (n := m.models[i]) and n.nvlink and n.nvlink.bridge
    ]
    if bare and not (m.count == 2 and _is_sold_bridged(m.gpu(0).model or "")):
        subject = observed(COUNTED, "host" if len(bare) > 1 else m.gpu_label(bare[0]), unit="links")
        yield subject.explains("links.bridge-missing", 0)


def _is_sold_bridged(model: str) -> bool:
    return "NVL" in model


def _uneven(m: Machine) -> Iterator[Finding]:
    """Equal cards joined by unequal numbers of links, and one GPU or two cards without."""
    joined = [pair for pair in m.pairs if m.links(pair)]
    product = m.models[0].nvlink if m.models[0] else None
    if None in m.classes.values() or m.mesh:
        return  # a pair that was not read may have any number
    if not joined:
        yield from _no_nvlink(m)
        return
    most = max(map(m.links, joined))
    if product and product.bridge:
        yield from _bridges(m, joined, most, product.links)
        return
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    if len({m.links(pair) for pair in joined}) > 1 and all(sum(bool({*a} & {*b}) for b in joined) == 1 for a in joined):
        for pair in joined:
            if m.links(pair) < most:
                yield _fewer(m, "nvlink-missing", [pair], m.links(pair), most)
        return
    sums = [sum(m.links(pair) for pair in joined if i in pair) for i in range(m.count)]
    whole = len(joined) == len(m.pairs)
    short = [i for i in range(m.count) if sums[i] < max(sums)] if whole else alone if m.count > 3 else []
    for i in short if len(short) * 2 < m.count else ():
        mine = [pair for pair in m.pairs if i in pair]
        yield _fewer(m, "nvlink-down", mine, sums[i], max(sums), Verdict.FAIL, m.gpu_label(i))


def _no_nvlink(m: Machine) -> Iterator[Finding]:
    """No pair has NVLink by the matrix, and the product is sold on boards or in pairs that have it."""
    product = m.models[0].nvlink if m.models[0] else None
    fastest = max((rate for pair in m.pairs for rate in m.one_way(pair)), default=0.0)
    if product and not product.bridge and fastest <= FASTEST_SLOT:
        yield _unused(m, copied=bool(fastest))
    elif m.count == 2 and _is_sold_bridged(m.gpu(0).model or ""):
        yield _fewer(m, "nvlink-missing", [(0, 1)], 0, product.links if product else 0)


def _unused(m: Machine, *, copied: bool) -> Finding:
    """A matrix without NVLink, of a product that is sold on boards with NVLink only.

    ``topo -mp``, MIG and some guests show none; copies at the rate of PCIe decide.
    """
    cause = "fabric-manager-down" if m.is_nvswitch else "nvlink-down"
    verdict = Verdict.FAIL if copied and not m.host.virtual else Verdict.UNKNOWN
    code, seen = "links.nvlink-unused" if copied else "links.nvlink-unseen", "no NVLink between any two GPUs"
    values: dict[str, Any] = {"cause": cause, "confidence": "likely", "model": m.gpu(0).model}
    return observed(COUNTED).finding(verdict, code, seen, "NVLink", others=("vm-no-p2p", "mig-enabled"), **values)


def _bridges(m: Machine, joined: list[Pair], most: int, links: int) -> Iterator[Finding]:
    uneven = len({m.links(pair) for pair in joined}) > 1
    wanted = most if uneven or links >= FOUR_WAY else links
    for pair in joined:
        if m.links(pair) < wanted:
            yield _fewer(m, "nvlink-down", [pair], m.links(pair), wanted)
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    if len(alone) == 2:
        yield _fewer(m, "nvlink-missing", [(alone[0], alone[1])], 0, most)


def _fewer(
    m: Machine, cause: str, pairs: list[Pair], have: int, most: int, verdict: Verdict = Verdict.WARN, subject: str = ""
) -> Finding:
    others = {"nvlink-down": ("nvlink-missing",), "nvlink-missing": ("nvlink-down",)}[cause] if len(pairs) == 1 else ()
    values: dict[str, Any] = {"cause": cause, "confidence": "likely", "missing": most - have}
    gpus = observed(COUNTED, subject or m.subject(pairs))
    return gpus.finding(verdict, "links.nvlinks-fewer", f"{have} links", f"{most} links", others=others, **values)


CHECK = quick_check(NAME, "hardware nvlink", evaluate, ("nvml", "system", f"text:{PARAMS}"))
