"""What follows from the observations of one machine: its links, the paths between its GPUs, and who may access whom."""

import re
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

from gpucheck.knowledge import GpuModel, NvLinkRate, find_gpu, nvlink_factor, pcie_gb_s
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, Port
from gpucheck.topology.expected import gpu_nvlink
from gpucheck.topology.pcie import REDIRECT
from gpucheck.topology.wiring import islands

# GeForce of Turing (RTX 20, GTX 16) and later: the stock driver has no peer-to-peer over PCIe. Pascal had it.
# Source: nccl#1127, nccl#1309, aikitoria/open-gpu-kernel-modules PR#5; nccl#257 for Pascal.
GEFORCE = re.compile(r"\b(?:RTX\s*[2-5]0[5-9]0|GTX\s*16[1-6]0)", re.IGNORECASE)

# Families for boards that the table does not list. NVLink by compute capability; PCIe as the boards are sold, small
# models with eight lanes left out on purpose.
NVLINK_FAMILIES = (
    (r"\bP100\b.*SXM", "6.0"),
    (r"\bV100\b", "7.0"),
    (r"\bA(?:100|800|30)\b", "8.0"),
    (r"\b(?:H100|H200|H800|H20|GH200)\b", "9.0"),
    (r"\bG?B200\b", "10.0"),
    (r"\bG?B300\b", "10.3"),
)
BOARDS = (
    (r"\bGTX\s*(?:9[678]0|10[678]0)|\bTITAN|\b[PV]100\b|\bRTX\s*20[678]0", (3, 16)),
    (r"\bRTX\s*(?:30[6-9]0|40[789]0)|\bA(?:100|800|40|30|10)\b|\bA[456]000\b|\bL(?:4|20|40S?)\b", (4, 16)),
    (r"\bRTX\s*50[789]0|\bRTX PRO [56]000|\bH(?:20|100|200|800)\b", (5, 16)),
)
# BAR1 while Resizable BAR or Above 4G Decoding is off, and the compute capability from which a card of each class needs
# a larger one for its peers: aikitoria/open-gpu-kernel-modules#22 is an RTX 3090 with 256 MiB whose peers get wrong
# data. Workstation cards of Ampere come with it and copy through mailboxes (general knowledge).
SMALL_BAR1_MIB = 256
LARGE_BAR1_FROM = {"datacenter": (8, 0), "geforce": (8, 0), "workstation": (8, 9)}


@lru_cache(maxsize=256)
def known_model(name: str | None) -> GpuModel | None:
    return find_gpu(name) if name else None


@lru_cache(maxsize=256)
def nvlink_of(name: str | None) -> NvLinkRate | None:
    """Generation and rate of a GPU's NVLinks; by family where the table lacks the very board (A100-SXM-64GB)."""
    if not name:
        return None
    key = next((key for pattern, key in NVLINK_FAMILIES if re.search(pattern, name, re.IGNORECASE)), None)
    return gpu_nvlink(name) or gpu_nvlink(key)


@lru_cache(maxsize=256)
def board_of(name: str | None) -> tuple[int, int] | None:
    """PCIe generation and width that a board is made for; by family where the table lacks it."""
    model = known_model(name)
    if model and model.pcie:
        return model.pcie.generation, model.pcie.width
    return next((link for pattern, link in BOARDS if name and re.search(pattern, name, re.IGNORECASE)), None)


def is_geforce_without_p2p(name: str | None) -> bool:
    """Whether the stock driver forbids peer-to-peer over PCIe on this card."""
    return bool(name) and GEFORCE.search(str(name)) is not None and not re.search(r"\bA\d{4}|Quadro", str(name))


def needs_large_bar1(model: GpuModel | None, capability: str | None = None) -> bool | None:
    """Whether peers of this GPU need more than the small window; None if its capability is not known.

    capability: that the driver reports.
    """
    capability = capability or (model.compute_capability if model else None)
    if capability is None:
        return None
    major, _, minor = capability.partition(".")
    return (int(major), int(minor or 0)) >= LARGE_BAR1_FROM[model.cls if model else "workstation"]


Pair = tuple[int, int]
NEAR = ("PIX", "PXB")
FASTEST_SLOT = 63.0  # GB/s raw of Gen5 x16: more between two GPUs is NVLink, whatever the product
# Links of products that were sold on boards with one or two links a pair, and their numbers.
MESHED, MESHED_LINKS = (4, 6), (2, 1)


class Link(NamedTuple):
    """A PCIe link at its best. gb_s: raw rate in one direction."""

    gb_s: float
    generation: int
    width: int


class Machine:
    """One machine as observed. Pairs are (i, j) with i < j; None means not known."""

    def __init__(self, seen: Observations) -> None:
        self.seen, self.host, self.measured = seen, seen.host, seen.measured
        self.count = len(seen.gpus)
        self.pairs = tuple(combinations(range(self.count), 2))
        self.models = tuple(known_model(gpu.model) for gpu in seen.gpus)
        self.above = tuple(frozenset(port.bus_id for port in gpu.path if port.bus_id) for gpu in seen.gpus)
        self.classes = {pair: self._class(*pair) for pair in self.pairs}
        self.access = {pair: self._access(pair) for pair in self.pairs}
        self.is_geforce = bool(seen.gpus) and all(is_geforce_without_p2p(gpu.model) for gpu in seen.gpus)
        self.translating = None if self.host.iommu is None else self.host.iommu == "translating"
        self.intel = bool(self.host.cpu and "intel" in self.host.cpu.lower())

    def gpu(self, i: int) -> ObservedGpu:
        return self.seen.gpus[i]

    def products(self, pair: Pair) -> tuple[str, ...]:
        """The models of a pair, whose rates may differ from those of other pairs; empty if one here is unknown."""
        known = [model.name for model in self.models if model]
        return tuple(sorted(known[i] for i in pair)) if len(known) == self.count else ()

    # --- Names -------------------------------------------------------------------------------------------------------

    def label(self, i: int) -> str:
        """The bus id, or the index if that is not known."""
        return self.gpu(i).bus_id or f"GPU{i}"

    def gpu_label(self, i: int) -> str:
        return f"gpu:{self.label(i)}"

    def subject(self, pairs: list[Pair]) -> str:
        """The subject of a finding about pairs: the pair, the GPU that all share, else the host."""
        if len(pairs) == 1:
            return f"pair:{self.label(pairs[0][0])}-{self.label(pairs[0][1])}"
        common = set.intersection(*map(set, pairs)) if pairs and len(pairs) < len(self.pairs) else set()
        return self.gpu_label(common.pop()) if len(common) == 1 else "host"

    # --- Paths and access --------------------------------------------------------------------------------------------

    def _class(self, i: int, j: int) -> str | None:
        """Path class of the matrix; from shared bridges or NUMA nodes if NVLink cannot join the two."""
        cell = self.seen.matrix and (self.seen.matrix[i][j] or self.seen.matrix[j][i])
        if cell or any(model and model.nvlink for model in (self.models[i], self.models[j])):
            return cell or None
        if self.above[i] & self.above[j]:
            return "PXB"
        nodes = {self.gpu(k).numa_node for k in (i, j)}
        return "SYS" if len(nodes) == 2 and None not in nodes else None

    def _access(self, pair: Pair) -> bool | None:
        ways, status, access = (pair, pair[::-1]), self.seen.p2p_status, self.seen.p2p_access
        granted = [status[i][j] == "OK" for i, j in ways if status[i][j]] if status else []
        if isinstance(access, bool):
            granted.append(access)
        elif access:
            granted += [bool(access[i][j]) for i, j in ways if access[i][j] is not None]
        return all(granted) if granted else None

    @cached_property
    def granted(self) -> tuple[Pair, ...]:
        return tuple(pair for pair, access in self.access.items() if access)

    @cached_property
    def granted_over_pcie(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.granted if not self.joined(pair))

    def status(self, pair: Pair) -> str | None:
        """The first P2P status of a pair that is not OK."""
        matrix = self.seen.p2p_status
        return (
            next((word for i, j in (pair, pair[::-1]) if (word := matrix[i][j]) and word != "OK"), None)
            if matrix
            else None
        )

    def links(self, pair: Pair) -> int:
        """NVLinks between two GPUs by the matrix."""
        cls = self.classes[pair] or ""
        return int(cls[2:]) if cls.startswith("NV") else 0

    def is_near(self, pair: Pair) -> bool:
        """Whether peer traffic of a pair stays below a switch."""
        return self.classes[pair] in NEAR or bool(self.above[pair[0]] & self.above[pair[1]])

    def crosses(self, pair: Pair) -> bool | None:
        one, other = (self.gpu(i).numa_node for i in pair)
        if one is not None and other is not None:
            return one != other
        cls = self.classes[pair]
        return None if cls is None or cls.startswith("NV") else cls == "SYS"

    @cached_property
    def uplinks(self) -> dict[frozenset[int], tuple[Port, ...]]:
        """GPUs that share a way up, but not all of them, with its ports; a switch of the matrix has none."""
        found: dict[frozenset[int], tuple[Port, ...]] = {}
        bridges = {port.bus_id: port for gpu in self.seen.gpus for port in gpu.path if port.bus_id}
        for port in (*self.seen.uplinks, *bridges.values()):
            group = frozenset(
                {*port.gpus, *(i for i in range(self.count) if port.bus_id and port.bus_id in self.above[i])}
            )
            named = bool(group) and port in self.seen.uplinks
            if port.kind != "chipset" and (1 < len(group) < self.count or named):
                found[group] = (*found.get(group, ()), port)
        for group in islands(range(self.count), (pair for pair in self.pairs if self.classes[pair] in NEAR)):
            if 1 < len(group) < self.count:
                found.setdefault(group, ())
        return found

    def shares_uplink(self, pair: Pair) -> bool | None:
        """Whether one link carries the host traffic of both GPUs."""
        if self.is_near(pair) or any(set(pair) <= group for group in self.uplinks):
            return True
        return None if self.classes[pair] is None or self.links(pair) else False

    def own_ports(self, i: int) -> list[Port]:
        return [
            p for p in self.gpu(i).path if p.kind != "chipset" and sum(p.bus_id in above for above in self.above) <= 1
        ]

    def read_links(self, i: int) -> list[Port]:
        """Readings of the link of GPU i, those under load first, then those of ports that serve it alone."""
        rows = [row for row in self.measured.under_load if row.gpu == i]
        loaded = [Port(gen=r.gen, width=r.width, max_gen=r.max_gen, max_width=r.max_width, read="load") for r in rows]
        return [port for port in (*loaded, self.gpu(i).pcie, *self.own_ports(i)) if port.gen or port.width]

    def is_behind_chipset(self, i: int) -> bool:
        """Whether the path of GPU i was read to cross the chipset."""
        return any(port.kind == "chipset" for port in self.gpu(i).path)

    # --- Rates as built ----------------------------------------------------------------------------------------------

    @cached_property
    def design(self) -> tuple[tuple[int | None, int | None], ...]:
        """Generation and width that each card and its slot are made for."""
        return tuple(self._design(i) for i in range(self.count))

    def _design(self, i: int) -> tuple[int | None, int | None]:
        pcie, board, own = self.gpu(i).pcie, board_of(self.gpu(i).model) or (None, None), self.own_ports(i)
        shared = [port for port in self.gpu(i).path if port.kind == "switch"]
        # A limit below the value that was read is a mistake of whatever reported it.
        gens = [p.max_gen for p in (*own, *shared) if p.max_gen and p.max_gen >= (pcie.gen or 0)]
        widths = [p.max_width for p in own if p.max_width and p.max_width >= (pcie.width or 0)]
        # What runs now shows nothing about what it should be: without a limit or a data sheet it is not known.
        gen = pcie.max_gen or board[0]
        width = pcie.width if self.is_narrow_by_design(i) else pcie.max_width or board[1]
        return (min([gen, *gens]) if gen else None), (min([width, *widths]) if width else None)

    def is_narrow_by_design(self, i: int) -> bool:
        """Fewer lanes than the card has for a reason that was read: the port above has no more, the provider of a
        virtual machine chose so, or all cards run at x8, as boards that split their slots make them.
        """
        pcie = self.gpu(i).pcie
        if not (pcie.width and pcie.max_width and pcie.width < pcie.max_width):
            return False
        if self.host.virtual:  # whose ports above are not those of the slot
            return True
        if above := [port.max_width for port in self.own_ports(i) if port.max_width]:
            return min(above) <= pcie.width
        distinct = {(gpu.model, gpu.pcie.width, gpu.pcie.max_width) for gpu in self.seen.gpus}
        return self.count > 1 and len(distinct) == 1 and pcie.width == 8

    @cached_property
    def raw(self) -> tuple[Link | None, ...]:
        """The own link of each GPU at its best."""
        return tuple(link_of(*built) for built in self.design)

    def to_host(self, i: int) -> Link | None:
        """The slowest link between GPU i and host memory as built; a switch may be faster than the port above it."""
        ports = (link_of(port.max_gen, port.max_width) for port in self.gpu(i).path if port.kind != "chipset")
        return min((link for link in (self.raw[i], *ports) if link), default=None) if self.raw[i] else None

    def is_slot_read(self, i: int) -> bool:
        """Whether the limits of the slot were read, so that the data sheet of the board is not needed."""
        return bool(self.gpu(i).pcie.max_gen and self.gpu(i).pcie.max_width)

    def line(self, pair: Pair) -> Link | None:
        """The slowest PCIe link between two GPUs as built."""
        ends = [self.raw[i] for i in pair]
        between = [ports for group, ports in self.uplinks.items() if (pair[0] in group) != (pair[1] in group)]
        known = [link for ports in between for port in ports if (link := link_of(port.max_gen, port.max_width))]
        return None if None in ends else min([*(link for link in ends if link), *known])

    # --- Numbers -----------------------------------------------------------------------------------------------------

    def one_way(self, pair: Pair, *, staged: bool = False) -> list[float]:
        """GB/s of each direction; half of the sum if only that was measured."""
        seen, (i, j) = self.measured, pair
        uni, both = (
            (seen.staged_uni_gb_s, seen.staged_bidir_gb_s) if staged else (seen.p2p_uni_gb_s, seen.p2p_bidir_gb_s)
        )
        found = [value for value in (uni[i][j], uni[j][i]) if value] if uni else []
        return found or ([value / 2 for value in (both[i][j], both[j][i]) if value] if both else [])

    def measured_alone(self, pair: Pair) -> bool:
        """Whether both directions were measured while nothing else was copied; False also if that is not known."""
        flags, (i, j) = self.measured.p2p_uni_alone, pair
        return bool(flags and flags[i][j] and flags[j][i])

    @cached_property
    def passed(self) -> list[float]:
        """The most that was seen to pass the PCIe link of each GPU in one direction, GB/s."""
        best, seen = [0.0] * self.count, self.measured
        matrices = (
            *((seen.p2p_uni_gb_s, 1.0, True), (seen.p2p_bidir_gb_s, 0.5, True)),
            *((seen.staged_uni_gb_s, 1.0, False), (seen.staged_bidir_gb_s, 0.5, False)),
        )
        for matrix, part, peer in matrices:
            for i, j in self.pairs if matrix else ():
                if peer and self.joined((i, j)) and self.access[i, j] is not False:
                    continue
                value = part * max(matrix[i][j] or 0.0, matrix[j][i] or 0.0)  # type: ignore[index]
                best[i], best[j] = max(best[i], value), max(best[j], value)
        for row in seen.host_device:
            best[row.gpu] = max(best[row.gpu], row.h2d_gb_s or 0.0, row.d2h_gb_s or 0.0)
        return best

    # --- NVLink ------------------------------------------------------------------------------------------------------

    @cached_property
    def is_nvswitch(self) -> bool:
        """Every pair is joined by the same number of NVLinks, or the product is sold on such a board only."""
        cells = set(self.classes.values())
        if len(self.pairs) > 6 and len(cells) == 1 and self.links(self.pairs[0]):
            return True
        return self.count >= 8 and all(model and model.fabric in ("nvswitch", "nvlink5") for model in self.models)

    @cached_property
    def mesh(self) -> dict[Pair, int]:
        """NVLinks of each pair on a board whose GPUs have different numbers of links to different peers, or none.

        Such boards give every GPU as many links as every other; a link that is down shows in two of the sums. Empty
        if the links, by the matrix or else by the numbers, do not add up like that. Source: NVIDIA DGX-1 white paper
        (hybrid cube mesh: four links a P100, six a V100).
        """
        links = {pair: self.links(pair) if self.seen.matrix else self._links_by_number(pair) for pair in self.pairs}
        found = {pair: count for pair, count in links.items() if count is not None}
        sums = {sum(found.get(pair, 0) for pair in self.pairs if i in pair) for i in range(self.count)}
        products = {model.nvlink.links for model in self.models if model and model.nvlink}
        whole = self.count > 3 and len(found) == len(self.pairs) and len(sums) == 1 and products in (set(), sums)
        return found if whole and len(set(found.values())) > 1 else {}

    def _links_by_number(self, pair: Pair) -> int | None:
        """Links that the rate of a pair shows; None if it is not close to that of a whole number of them."""
        rate, best = nvlink_of(self.gpu(pair[0]).model), max(self.one_way(pair), default=0.0)
        if rate is None or not best:
            return None
        links = best / (rate.gb_s * nvlink_factor(rate.generation)) if self._beyond_pcie(pair) else 0
        return round(links) if abs(links - round(links)) < 0.15 else None

    def _beyond_pcie(self, pair: Pair) -> bool:
        raw = [link.gb_s for i in pair if (link := self.raw[i])]
        return max(self.one_way(pair), default=0.0) > 1.05 * max(raw, default=FASTEST_SLOT)

    def joined(self, pair: Pair) -> int:
        """NVLinks between two GPUs: of the matrix; else of the product, if it is a board or more than PCIe was seen."""
        if pair not in self._joined:
            self._joined[pair] = self._join(pair)
        return self._joined[pair]

    @cached_property
    def _joined(self) -> dict[Pair, int]:
        return {}

    def _join(self, pair: Pair) -> int:
        if self.classes[pair]:
            return self.links(pair)
        if self.mesh:
            return self.mesh[pair]
        products = [model.nvlink for i in pair if (model := self.models[i]) and model.nvlink]
        beyond = self._beyond_pcie(pair)
        if len(products) < len(pair):
            rate = nvlink_of(self.gpu(pair[0]).model)
            best = max((value for other in self.pairs for value in self.one_way(other)), default=0.0)
            return max(1, round(best / rate.gb_s / 0.9)) if beyond and rate else int(beyond)
        if any(product.bridge for product in products) and not beyond:
            return 0
        least = min(product.links for product in products)
        return least if self.is_nvswitch or products[0].bridge else max(1, least // (self.count - 1))

    def is_wiring_known(self, pair: Pair) -> bool:
        """Whether the number of NVLinks of a pair is more than a guess by the product."""
        return self.is_nvswitch or bool(self.classes[pair] or self.mesh)

    def wirings(self, pair: Pair) -> tuple[int, ...]:
        """NVLinks between two GPUs on each board that the product is sold on, the most first.

        All links through a switch, a third to each of three peers, or the mesh of the DGX-1.
        """
        model, most = self.models[pair[0]], self.joined(pair)
        if self.is_wiring_known(pair) or model is None or model.nvlink is None or model.nvlink.bridge:
            return (most,)
        links = model.nvlink.links
        switched = (links,) if model.fabric or links not in MESHED else ()
        return (*switched, *((links // 3,) if links > MESHED[-1] else MESHED_LINKS))

    def over_pcie(self, pair: Pair) -> bool:
        """Whether peer copies of a pair would go straight over PCIe."""
        counted = all(self.gpu(i).nvlinks.active for i in pair)
        return self.access[pair] is not False and not (self.links(pair) or self.is_nvswitch or counted)

    # --- Settings that were read -------------------------------------------------------------------------------------

    @cached_property
    def acs(self) -> bool | None:
        """Whether a bridge between GPUs redirects peer traffic. Registers count if they were read."""
        between = {bridge for i, j in self.pairs for bridge in self.above[i] ^ self.above[j]}
        between |= {port.bus_id for gpu in self.seen.gpus for port in gpu.path if port.kind == "switch" and port.bus_id}
        if self.host.acs:
            redirecting = {row.bus_id for row in self.host.acs if row.control & REDIRECT}
            if not between:
                return bool(redirecting)
            return bool(redirecting & between) if between & {row.bus_id for row in self.host.acs} else None
        reported = self.host.acs_redirect
        if isinstance(reported, tuple):
            return bool(between & set(reported)) if between else bool(reported)
        return reported

    @property
    def acs_bridges(self) -> tuple[str, ...]:
        reported = self.host.acs_redirect
        named = reported if isinstance(reported, tuple) else ()
        return tuple(row.bus_id for row in self.host.acs if row.control & REDIRECT) or named

    def has_small_bar(self, pair: Pair) -> bool:
        """Whether peers see 256 MiB of the memory of a card that needs a larger BAR1."""
        sizes = [self.gpu(i).bar1_mib for i in pair]
        if any(needs_large_bar1(self.models[i]) is False for i in pair):
            return False
        small = any(size is not None and size <= SMALL_BAR1_MIB for size in sizes)
        return small or (self.host.rebar is False and None in sizes)

    @property
    def several_nodes(self) -> bool:
        """Whether host memory may be far from a GPU."""
        return (self.host.sockets or 1) > 1 or len({gpu.numa_node for gpu in self.seen.gpus} - {None}) > 1

    @property
    def is_clear(self) -> bool:
        """Bridges and IOMMU were read and are clear, and the data was right."""
        return self.acs is False and self.translating is False and self.measured.integrity_bad_pairs == ()


def link_of(generation: int | None, width: int | None) -> Link | None:
    """Return the link of this generation and width, None if it is not known or no such link exists."""
    if not generation or not width:
        return None
    try:
        return Link(pcie_gb_s(generation, width), generation, width)
    except LookupError:
        return None
