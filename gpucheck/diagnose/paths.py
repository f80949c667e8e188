"""Where the GPUs of a machine sit: path classes, the bridges above them, and the ways up that they share."""

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations

from gpucheck.diagnose._names import known_model
from gpucheck.knowledge import GpuModel
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, Port
from gpucheck.topology.islands import islands
from gpucheck.topology.pcie.acs import REDIRECT

Pair = tuple[int, int]
NEAR = ("PIX", "PXB")


class Paths:
    """The GPUs of one machine and what joins them. Pairs are (i, j) with i < j unless stated to be ordered."""

    def __init__(self, seen: Observations) -> None:
        self.seen = seen
        self.host = seen.host
        self.measured = seen.measured
        self.count = len(seen.gpus)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every unordered pair."""
        return tuple(combinations(range(self.count), 2))

    def pairs_with(self, i: int) -> tuple[Pair, ...]:
        """The pairs of one GPU."""
        return tuple((min(i, j), max(i, j)) for j in range(self.count) if j != i)

    def gpu(self, i: int) -> ObservedGpu:
        """What is known of one GPU."""
        return self.seen.gpus[i]

    @cached_property
    def models(self) -> tuple[GpuModel | None, ...]:
        """The table's row of each GPU."""
        return tuple(known_model(gpu.model) for gpu in self.seen.gpus)

    def label(self, i: int) -> str:
        """The bus id, or the index where that is not known."""
        return self.gpu(i).bus_id or f"GPU{i}"

    def gpu_label(self, i: int) -> str:
        """A GPU as the subject of a finding."""
        return f"gpu:{self.label(i)}"

    def pair_label(self, pair: Pair) -> str:
        """A pair as the subject of a finding."""
        return f"pair:{self.label(pair[0])}-{self.label(pair[1])}"

    @cached_property
    def classes(self) -> dict[Pair, str | None]:
        """Path class of each pair; from shared bridges or NUMA nodes where there is no matrix, None where neither."""
        return {pair: self._cell(*pair) or self._guess(*pair) for pair in self.pairs}

    def _cell(self, i: int, j: int) -> str | None:
        matrix = self.seen.matrix
        return (matrix[i][j] or matrix[j][i]) if matrix else None

    def _guess(self, i: int, j: int) -> str | None:
        if any(model and model.nvlink for model in (self.models[i], self.models[j])):
            return None  # NVLink may connect them; only a matrix shows that
        if self.shared_hops(i, j):
            return "PXB"
        one, other = self.gpu(i).numa_node, self.gpu(j).numa_node
        if one is not None and other is not None and one != other:
            return "SYS"
        return None

    def is_nvlink(self, pair: Pair) -> bool:
        """Connected by NVLink according to the matrix."""
        return (self.classes[pair] or "").startswith("NV")

    def links(self, pair: Pair) -> int:
        """How many NVLinks the matrix gives a pair."""
        cls = self.classes[pair] or ""
        return int(cls[2:]) if cls.startswith("NV") else 0

    def crosses_nodes(self, pair: Pair) -> bool | None:
        """Whether the path leaves a NUMA node; None if class and nodes are unknown."""
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
        """Whether one link carries both GPUs' host traffic; None if the class does not decide."""
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

    def own_ports(self, i: int) -> tuple[Port, ...]:
        """Ports above GPU i that serve no other GPU."""
        return tuple(port for port in self.gpu(i).path if port.kind != "chipset" and len(self.behind(port)) <= 1)

    @cached_property
    def groups(self) -> tuple[frozenset[int], ...]:
        """GPUs that share a way up: below one switch, or behind one uplink that is named."""
        found = [frozenset(self.behind(port)) for port in self.shared_ports]
        return tuple(dict.fromkeys([*found, *(group for group in self.switches if not set(found) & {group})]))

    @cached_property
    def switches(self) -> tuple[frozenset[int], ...]:
        """Groups of two or more GPUs that PIX and PXB cells join."""
        near = (pair for pair in self.pairs if self.classes[pair] in NEAR)
        return tuple(group for group in islands(range(self.count), near) if 1 < len(group) < self.count)

    @cached_property
    def shared_ports(self) -> tuple[Port, ...]:
        """Links above more than one GPU and not above all, each once."""
        found = {str(p.bus_id): p for gpu in self.seen.gpus for p in gpu.path if 1 < len(self.behind(p)) < self.count}
        named = {port.bus_id or f"uplink {i}": port for i, port in enumerate(self.seen.uplinks)}
        return tuple(port for port in {**found, **named}.values() if port.kind != "chipset" and self.behind(port))

    @cached_property
    def _bridges(self) -> set[str]:
        """Every bridge between two GPUs, up to and including the switch they share, but nothing above that."""
        found = {port.bus_id for pair in self.pairs for port in self.crossed(pair) if port.bus_id}
        shared = {bus_id for pair in self.pairs for bus_id in self.shared_hops(*pair)}
        switches = {port.bus_id for gpu in self.seen.gpus for port in gpu.path if port.kind != "root-port"}
        return found | {bus_id for bus_id in shared & switches if bus_id}

    @cached_property
    def acs(self) -> bool | None:
        """Whether a bridge on the GPUs' paths redirects peer traffic; None where that is not known."""
        return _redirects(self.seen, self._bridges)

    @cached_property
    def acs_bridges(self) -> tuple[str, ...]:
        """The bridges that redirect, where they are named."""
        return _redirecting_bridges(self.seen)


def _ids(path: Iterable[Port]) -> tuple[str, ...]:
    return tuple(port.bus_id for port in path if port.bus_id)


def _redirects(seen: Observations, paths: set[str]) -> bool | None:
    """Whether a bridge redirects. The registers count where they were read.

    paths: bridges between GPUs; others do not count, where these are known.
    """
    if seen.host.acs:
        redirecting = {row.bus_id for row in seen.host.acs if row.control & REDIRECT}
        if not paths:
            return bool(redirecting)
        return bool(paths & redirecting) if paths & {row.bus_id for row in seen.host.acs} else None
    reported = seen.host.acs_redirect
    if isinstance(reported, tuple):
        return bool(paths & set(reported)) if paths else bool(reported)
    return reported


def _redirecting_bridges(seen: Observations) -> tuple[str, ...]:
    """The bridges that redirect, where they are named."""
    reported = seen.host.acs_redirect
    named = reported if isinstance(reported, tuple) else ()
    return tuple(row.bus_id for row in seen.host.acs if row.control & REDIRECT) or named
