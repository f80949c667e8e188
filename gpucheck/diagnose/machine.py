"""What follows from the observations before anything is judged: paths, links, who may reach whom."""

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations

from gpucheck.diagnose._names import board_of, cpu_named, known_model, nvlink_of
from gpucheck.knowledge import GpuModel, pcie_gb_s
from gpucheck.model.hardware import PcieLink
from gpucheck.model.observations import Observations, ObservedGpu, Port
from gpucheck.topology import Cpu

Pair = tuple[int, int]
NEAR = ("PIX", "PXB")
DETOUR = 0.8  # of staged copies
FASTEST_SLOT = 63.0  # GB/s raw of Gen5 x16: more is NVLink, whatever the product
# Bits of the ACS control register that send peer traffic to the root complex: request and completion redirect, egress
# control. Source validation (0x01) alone redirects nothing. Source: Linux drivers/pci/p2pdma.c.
REDIRECTING = 0x04 | 0x08 | 0x20


class Machine:
    """One machine as it was observed. Pairs are (i, j) with i < j unless they are said to be ordered."""

    def __init__(self, seen: Observations) -> None:
        self.seen = seen
        self.host = seen.host
        self.measured = seen.measured
        self.count = len(seen.gpus)
        self._uplinks: dict[frozenset[int], float | None] = {}
        self._unseen: dict[Pair, int] = {}
        self._granted: dict[Pair, bool | None] = {}
        self._alone: dict[tuple[Pair, bool], float | None] = {}

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every unordered pair."""
        return tuple(combinations(range(self.count), 2))

    def pairs_with(self, i: int) -> tuple[Pair, ...]:
        """The pairs of one GPU."""
        return tuple((min(i, j), max(i, j)) for j in range(self.count) if j != i)

    def gpu(self, i: int) -> ObservedGpu:
        """What was told of one GPU."""
        return self.seen.gpus[i]

    @cached_property
    def models(self) -> tuple[GpuModel | None, ...]:
        """The table's row of each GPU."""
        return tuple(known_model(gpu.model) for gpu in self.seen.gpus)

    @cached_property
    def cpu(self) -> Cpu | None:
        """The CPU by its name."""
        return cpu_named(self.host.cpu)

    def label(self, i: int) -> str:
        """The bus id, or the index where none was told."""
        return self.gpu(i).bus_id or f"GPU{i}"

    def gpu_label(self, i: int) -> str:
        """A GPU as the subject of a finding."""
        return f"gpu:{self.label(i)}"

    def pair_label(self, pair: Pair) -> str:
        """A pair as the subject of a finding."""
        return f"pair:{self.label(pair[0])}-{self.label(pair[1])}"

    @cached_property
    def classes(self) -> dict[Pair, str | None]:
        """Path class of each pair; from shared bridges or NUMA nodes where no matrix was told, None where neither."""
        return {pair: self._cell(*pair) or self._guess(*pair) for pair in self.pairs}

    def _cell(self, i: int, j: int) -> str | None:
        matrix = self.seen.matrix
        return (matrix[i][j] or matrix[j][i]) if matrix else None

    def _guess(self, i: int, j: int) -> str | None:
        if any(model and model.nvlink for model in (self.models[i], self.models[j])):
            return None  # NVLink may join them, and only a matrix says so
        if self.shared_hops(i, j):
            return "PXB"
        one, other = self.gpu(i).numa_node, self.gpu(j).numa_node
        if one is not None and other is not None and one != other:
            return "SYS"
        return None

    def is_nvlink(self, pair: Pair) -> bool:
        """Joined by NVLink as far as the matrix says."""
        return (self.classes[pair] or "").startswith("NV")

    def links(self, pair: Pair) -> int:
        """How many NVLinks the matrix gives a pair."""
        cls = self.classes[pair] or ""
        return int(cls[2:]) if cls.startswith("NV") else 0

    def unseen_links(self, pair: Pair) -> int:
        """Links of a product that comes on a board with NVLink, where no matrix says how its GPUs are joined."""
        if self.classes[pair] is not None:
            return 0
        if pair not in self._unseen:
            self._unseen[pair] = self._unseen_links(pair)
        return self._unseen[pair]

    def _unseen_links(self, pair: Pair) -> int:
        models = [model.nvlink for i in pair if (model := self.models[i]) and model.nvlink]
        beyond = self._beyond_pcie(pair)
        if len(models) < len(pair):
            return self._links_by_number(pair) if beyond else 0
        if any(link.bridge for link in models) and not beyond:
            return 0
        return min(link.links for link in models)

    def _links_by_number(self, pair: Pair) -> int:
        """As many links as the fastest number of the machine needs; 1 where their rate is not known."""
        rate = nvlink_of(self.gpu(pair[0]).model)
        seen = self.measured
        best = max((v for m, part in ((seen.p2p_uni_gb_s, 1.0), (seen.p2p_bidir_gb_s, 0.5)) if m for row in m
                    for cell in row if cell and (v := cell * part)), default=0.0)  # fmt: skip
        return max(1, round(best / (rate.gb_s * 0.9))) if rate else 1

    def _beyond_pcie(self, pair: Pair) -> bool:
        """More was measured than a PCIe link carries."""
        seen, (i, j) = self.measured, pair
        rows = ((seen.p2p_uni_gb_s, 1.0), (seen.p2p_bidir_gb_s, 0.5))
        best = max((part * (m[a][b] or 0.0) for m, part in rows if m for a, b in ((i, j), (j, i))), default=0.0)
        raw = [rate for i in pair if (rate := self.raw(i)) is not None]
        return best > 1.05 * (max(raw) if raw else FASTEST_SLOT)

    def crosses_nodes(self, pair: Pair) -> bool | None:
        """Whether the path leaves a NUMA node; None where neither class nor nodes tell."""
        one, other = self.gpu(pair[0]).numa_node, self.gpu(pair[1]).numa_node
        if one is not None and other is not None:
            return one != other
        cls = self.classes[pair]
        return None if cls is None or cls.startswith("NV") else cls == "SYS"

    def shared_hops(self, i: int, j: int) -> frozenset[str]:
        """Bridges above both GPUs."""
        return self._above[i] & self._above[j]

    @cached_property
    def _above(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(_ids(gpu.path)) for gpu in self.seen.gpus)

    def share_uplink(self, pair: Pair) -> bool | None:
        """Whether one link carries both GPUs' host traffic; None where the class does not tell."""
        if self.classes[pair] in NEAR or self.shared_hops(*pair) or self._common_uplinks(pair):
            return True
        return None if self.classes[pair] is None or self.is_nvlink(pair) else False

    def _common_uplinks(self, pair: Pair) -> bool:
        return any(pair[0] in uplink.gpus and pair[1] in uplink.gpus for uplink in self.seen.uplinks)

    def crossed(self, pair: Pair) -> tuple[Port, ...]:
        """Links above the GPUs on the way between the two: bridges above one of them only."""
        shared = self.shared_hops(*pair)
        hops = [port for i in pair for port in self.gpu(i).path if port.bus_id not in shared or port.bus_id is None]
        return (*hops, *(u for u in self.seen.uplinks if (pair[0] in u.gpus) != (pair[1] in u.gpus)))

    def behind(self, port: Port) -> tuple[int, ...]:
        """The GPUs below a bridge or uplink."""
        below = (i for i, above in enumerate(self._above) if port.bus_id and port.bus_id in above)
        return tuple(sorted({*port.gpus, *below}))

    def link(self, i: int) -> PcieLink:
        """The most that a GPU's own link can do: device and slot as told, else what the board is made for."""
        return self._links[i]

    @cached_property
    def _links(self) -> tuple[PcieLink, ...]:
        return tuple(self._link(i) for i in range(self.count))

    def _link(self, i: int) -> PcieLink:
        pcie, board = self.gpu(i).pcie, board_of(self.gpu(i).model)
        trained = pcie.gen if pcie.read == "load" else None
        return PcieLink(
            max_generation=pcie.max_gen or (board[0] if board else None) or trained or pcie.gen,
            max_width=pcie.width
            if self.is_narrow_by_design(i)
            else pcie.max_width or (board[1] if board else None) or pcie.width,
        )

    def is_narrow_by_design(self, i: int) -> bool:
        """Fewer lanes than the maximum, on purpose: the port above has no more, a virtual machine's provider chose so,
        or all cards are alike at half width, as boards that split their slots make them.
        """
        pcie = self.gpu(i).pcie
        if not (pcie.width and pcie.max_width and pcie.width < pcie.max_width):
            return False
        own = (port for port in self.gpu(i).path if port.kind != "chipset" and len(self.behind(port)) <= 1)
        above = [port.max_width for port in own if port.max_width]
        if above:
            return min(above) <= pcie.width
        alike = {(gpu.model, gpu.pcie.width, gpu.pcie.max_width) for gpu in self.seen.gpus}
        return bool(self.host.virtual) or (self.count > 1 and len(alike) == 1 and pcie.width == 8)

    def is_slot_known(self, i: int) -> bool:
        """Whether the slot's own limits are known, so that the board's data sheet is not needed."""
        return bool(self.gpu(i).pcie.max_gen and self.gpu(i).pcie.max_width)

    def raw(self, i: int) -> float | None:
        """Raw rate of a GPU's own link at its best, GB/s; None where it is not known."""
        return self._raw[i]

    @cached_property
    def _raw(self) -> tuple[float | None, ...]:
        return tuple(rate_of(link.max_generation, link.max_width) for link in self._links)

    @cached_property
    def groups(self) -> tuple[frozenset[int], ...]:
        """GPUs that share a way up: below one switch, or behind one uplink that was told."""
        found = [frozenset(self.behind(port)) for port in self.shared_ports]
        return tuple(dict.fromkeys([*found, *(group for group in self.switches if not set(found) & {group})]))

    @cached_property
    def switches(self) -> tuple[frozenset[int], ...]:
        """Groups of two or more GPUs that PIX and PXB cells join."""
        group = {i: frozenset([i]) for i in range(self.count)}
        for i, j in self.pairs:
            if self.classes[i, j] in NEAR:
                whole = group[i] | group[j]
                group.update(dict.fromkeys(whole, whole))
        return tuple(sorted({g for g in group.values() if 1 < len(g) < self.count}, key=min))

    @cached_property
    def shared_ports(self) -> tuple[Port, ...]:
        """Links above more than one GPU and not above all, each once."""
        found = {str(p.bus_id): p for gpu in self.seen.gpus for p in gpu.path if 1 < len(self.behind(p)) < self.count}
        named = {port.bus_id or f"uplink {i}": port for i, port in enumerate(self.seen.uplinks)}
        return tuple(port for port in {**found, **named}.values() if port.kind != "chipset" and self.behind(port))

    def uplink(self, group: frozenset[int]) -> float | None:
        """Raw GB/s of a group's way up at its best; that of its GPUs' own links where its ports were not read."""
        if group not in self._uplinks:
            self._uplinks[group] = self._uplink(group)
        return self._uplinks[group]

    def _uplink(self, group: frozenset[int]) -> float | None:
        ports = [port for port in self.shared_ports if frozenset(self.behind(port)) == group]
        known = [rate for port in ports if (rate := rate_of(port.max_gen or port.gen, port.max_width or port.width))]
        own = [rate for i in group if (rate := self.raw(i)) is not None]
        return min(known) if known else max(own, default=None)

    def alone(self, pair: Pair, staged: bool) -> float | None:
        """The sum of both directions measured one at a time, GB/s; None where one of them was not."""
        key = pair, staged
        if key not in self._alone:
            matrix = self.measured.staged_uni_gb_s if staged else self.measured.p2p_uni_gb_s
            told = [matrix[i][j] for i, j in (pair, pair[::-1])] if matrix else [None]
            self._alone[key] = None if None in told else sum(value or 0.0 for value in told)
        return self._alone[key]

    @cached_property
    def detours(self) -> tuple[Pair, ...]:
        """Pairs whose copies with peer-to-peer asked for are clearly slower than those through host memory."""
        both = ((pair, self.alone(pair, staged=False), self.alone(pair, staged=True)) for pair in self.pairs)
        return tuple(pair for pair, direct, staged in both if direct and staged and direct < DETOUR * staged)

    @cached_property
    def several_nodes(self) -> bool:
        """Whether memory may be far from a GPU: several sockets, or GPUs at several NUMA nodes."""
        nodes = {gpu.numa_node for gpu in self.seen.gpus} - {None}
        return (self.host.sockets or 1) > 1 or len(nodes) > 1

    def access(self, pair: Pair) -> bool | None:
        """What the driver says: P2P status, then peer access. A refusal in one direction is a refusal."""
        if pair not in self._granted:
            self._granted[pair] = self._access(pair)
        return self._granted[pair]

    def _access(self, pair: Pair) -> bool | None:
        status, access = self.seen.p2p_status, self.seen.p2p_access
        ways = (pair, pair[::-1])
        told = [status[i][j] == "OK" for i, j in ways if status[i][j]] if status else []
        if isinstance(access, bool):
            told.append(access)
        elif access:
            told += [bool(access[i][j]) for i, j in ways if access[i][j] is not None]
        return all(told) if told else None

    def status(self, pair: Pair) -> str | None:
        """The first P2P status of a pair that is not OK."""
        matrix = self.seen.p2p_status
        said = [matrix[i][j] for i, j in (pair, pair[::-1])] if matrix else []
        return next((word for word in said if word and word != "OK"), None)

    @cached_property
    def acs(self) -> bool | None:
        """Whether a bridge on the GPUs' paths redirects peer traffic. The registers are the truth where they were read.

        Bridges that are on no GPU's path do not count, where the paths are known.
        """
        paths = self._bridges
        if self.host.acs:
            redirecting = {row.bus_id for row in self.host.acs if row.control & REDIRECTING}
            if not paths:
                return bool(redirecting)
            return bool(paths & redirecting) if paths & {row.bus_id for row in self.host.acs} else None
        said = self.host.acs_redirect
        if isinstance(said, tuple):
            return bool(paths & set(said)) if paths else bool(said)
        return said

    @cached_property
    def _bridges(self) -> set[str]:
        """Every bridge between two GPUs, up to and including the switch they share, but nothing above that."""
        found = {port.bus_id for pair in self.pairs for port in self.crossed(pair) if port.bus_id}
        shared = {bus_id for pair in self.pairs for bus_id in self.shared_hops(*pair)}
        switches = {port.bus_id for gpu in self.seen.gpus for port in gpu.path if port.kind != "root-port"}
        return found | {bus_id for bus_id in shared & switches if bus_id}

    @cached_property
    def acs_bridges(self) -> tuple[str, ...]:
        """The bridges that redirect, where they are named."""
        said = self.host.acs_redirect
        named = said if isinstance(said, tuple) else ()
        return tuple(row.bus_id for row in self.host.acs if row.control & REDIRECTING) or named

    @cached_property
    def translating(self) -> bool | None:
        """Whether the IOMMU translates GPU traffic."""
        return None if self.host.iommu is None else self.host.iommu == "translating"

    @cached_property
    def is_nvswitch(self) -> bool:
        """Every pair is joined by the same number of NVLinks, or the product comes on such a board."""
        cells = set(self.classes.values())
        if len(self.pairs) > 6 and len(cells) == 1 and self.is_nvlink(self.pairs[0]):
            return True
        fabrics = [model and model.fabric for model in self.models]
        return self.count >= 8 and all(fabric in ("nvswitch", "nvlink5") for fabric in fabrics)


def rate_of(generation: int | None, width: int | None) -> float | None:
    """Raw GB/s of a PCIe link, None where it is not known or no such link exists."""
    if generation is None or width is None:
        return None
    try:
        return pcie_gb_s(generation, width)
    except LookupError:
        return None


def _ids(path: Iterable[Port]) -> tuple[str, ...]:
    return tuple(port.bus_id for port in path if port.bus_id)
