"""What follows from the observations before anything is judged: paths, links, who may reach whom."""

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations

from gpucheck.diagnose._names import board_of, cpu_named, is_geforce_without_p2p, known_model
from gpucheck.knowledge import GpuModel, pcie_gb_s
from gpucheck.model.hardware import PcieLink
from gpucheck.model.observations import Observations, ObservedGpu, Port
from gpucheck.topology import Cpu, Hop

Pair = tuple[int, int]
NEAR = ("PIX", "PXB")
# Bits of the ACS control register that send peer traffic to the root complex: request and completion redirect, egress
# control. Source validation (0x01) alone redirects nothing. Source: Linux drivers/pci/p2pdma.c.
REDIRECTING = 0x04 | 0x08 | 0x20
# A small copy takes 1 to 5 us from GPU to GPU and 11 to 21 us through host memory. Source: cuda-samples#230, nccl#1127.
DIRECT_BELOW_US, STAGED_ABOVE_US = 6.0, 9.0


class Machine:
    """One machine as it was observed. Pairs are (i, j) with i < j unless they are said to be ordered."""

    def __init__(self, seen: Observations) -> None:
        self.seen = seen
        self.host = seen.host
        self.measured = seen.measured
        self.count = len(seen.gpus)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every unordered pair."""
        return tuple(combinations(range(self.count), 2))

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

    def pair_label(self, pair: Pair) -> str:
        """A subject of a finding."""
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

    def crosses_nodes(self, pair: Pair) -> bool | None:
        """Whether the path leaves a NUMA node; None where neither class nor nodes tell."""
        one, other = self.gpu(pair[0]).numa_node, self.gpu(pair[1]).numa_node
        if one is not None and other is not None:
            return one != other
        cls = self.classes[pair]
        return None if cls is None or cls.startswith("NV") else cls == "SYS"

    def shared_hops(self, i: int, j: int) -> frozenset[str]:
        """Bridges above both GPUs."""
        return frozenset(_ids(self.gpu(i).path)) & frozenset(_ids(self.gpu(j).path))

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
        below = (i for i, gpu in enumerate(self.seen.gpus) if port.bus_id and port.bus_id in _ids(gpu.path))
        return tuple(sorted({*port.gpus, *below}))

    def link(self, i: int) -> PcieLink:
        """The most that a GPU's own link can do: device and slot as told, else what the board is made for."""
        pcie, board = self.gpu(i).pcie, board_of(self.gpu(i).model)
        trained = pcie.gen if pcie.read == "load" else None
        return PcieLink(
            max_generation=pcie.max_gen or (board[0] if board else None) or trained,
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

    def link_told(self, i: int) -> bool:
        """Whether the slot's own limits were told, so that the board's data sheet need not stand in."""
        return bool(self.gpu(i).pcie.max_gen and self.gpu(i).pcie.max_width)

    def raw(self, i: int) -> float | None:
        """Raw rate of a GPU's own link at its best, GB/s; None where it is not known."""
        return rate_of(self.link(i).max_generation, self.link(i).max_width)

    def trained(self, i: int) -> float | None:
        """Raw rate of a GPU's link as it was read, GB/s."""
        pcie, most = self.gpu(i).pcie, self.link(i)
        return rate_of(pcie.gen or most.max_generation, pcie.width or most.max_width)

    def hops(self, pair: Pair) -> list[Hop]:
        """Every link on the way at its best, as the topology room reckons with them."""
        hops = [Hop(self.label(i), self.link(i)) for i in pair]
        for port in self.crossed(pair):
            link = PcieLink(max_generation=port.max_gen or port.gen, max_width=port.max_width or port.width)
            if link.max_generation and link.max_width:
                hops.append(Hop(port.bus_id or "uplink", link))
        return hops

    @cached_property
    def direct(self) -> dict[Pair, bool | None]:
        """Whether copies go straight from GPU to GPU: by what the driver says, else by latency, else by the product."""
        return {pair: self._direct(pair) for pair in self.pairs}

    def _direct(self, pair: Pair) -> bool | None:
        said = self.access(pair)
        if said is not None:
            return said
        if self.is_nvlink(pair):
            return True
        latency = self.latency(pair)
        if latency is not None and latency < DIRECT_BELOW_US:
            return True
        if latency is not None and latency > STAGED_ABOVE_US:
            return False
        return False if all(is_geforce_without_p2p(self.gpu(i).model) for i in pair) else None

    def access(self, pair: Pair) -> bool | None:
        """What the driver says: P2P status, then peer access. A refusal in one direction is a refusal."""
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

    def latency(self, pair: Pair) -> float | None:
        """The higher of the two directions with P2P asked for, us."""
        matrix = self.measured.p2p_latency_us
        told = [matrix[i][j] for i, j in (pair, pair[::-1])] if matrix else []
        return max((value for value in told if value), default=None)

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
