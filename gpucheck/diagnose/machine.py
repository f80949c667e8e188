"""What follows from the observations before the evaluation: links, their rates, who may reach whom."""

from functools import cached_property

from gpucheck.diagnose._names import board_of, nvlink_of
from gpucheck.diagnose.paths import Pair, Paths
from gpucheck.knowledge import nvlink_factor, pcie_gb_s
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.host.hardware import PcieLink

WHOLE = 0.15  # of a link: how far a number may be from that of so many links
DETOUR = 0.8  # of staged copies
FASTEST_SLOT = 63.0  # GB/s raw of Gen5 x16: more is NVLink, whatever the product


class Machine(Paths):
    """One machine as it was observed: what its links can carry, and who may reach whom."""

    @cached_property
    def unseen_links(self) -> dict[Pair, int]:
        """Links of a product that is sold on a board with NVLink, if no matrix shows how its GPUs are connected."""
        if self.mesh and not self.seen.matrix:
            return self.mesh
        return {pair: 0 if self.classes[pair] else self._links_by_product(pair) for pair in self.pairs}

    @cached_property
    def mesh(self) -> dict[Pair, int]:
        """NVLinks of each pair on a board whose GPUs have different numbers of links to different peers, or none.

        Such boards give every GPU as many links as every other; a link that is down shows in two of the sums. Empty
        where the links, by the matrix or else by the numbers, do not add up like that. Source: NVIDIA DGX-1 white
        paper (hybrid cube mesh: four links a P100, six a V100).
        """
        links = {pair: self.links(pair) if self.seen.matrix else self._links_by_own_number(pair) for pair in self.pairs}
        found = {pair: count for pair, count in links.items() if count is not None}
        sums = {sum(found.get(pair, 0) for pair in self.pairs_with(i)) for i in range(self.count)}
        peers = min((sum(found.get(p, 0) > 0 for p in self.pairs_with(i)) for i in range(self.count)), default=0)
        products = {model.nvlink.links for model in self.models if model and model.nvlink}
        whole = len(found) == len(self.pairs) and len(sums) == 1 and (not products or products == sums)
        return found if whole and peers > 1 and len(set(found.values())) > 1 else {}

    def _links_by_own_number(self, pair: Pair) -> int | None:
        """Links that a pair's own number shows; None where it is not close to that of a whole number of them."""
        rate, fastest = nvlink_of(self.gpu(pair[0]).model), self.fastest(pair)
        if not rate or not fastest:
            return None
        if not self._beyond_pcie(pair):
            return 0
        links = fastest / (rate.gb_s * nvlink_factor(rate.generation))
        return round(links) if abs(links - round(links)) < WHOLE else None

    def _links_by_product(self, pair: Pair) -> int:
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
        return max(1, round(self._fastest / (rate.gb_s * 0.9))) if rate else 1

    def _beyond_pcie(self, pair: Pair) -> bool:
        """More was measured than a PCIe link carries."""
        raw = [rate for i in pair if (rate := self.raw[i]) is not None]
        return self.fastest(pair) > 1.05 * max(raw, default=FASTEST_SLOT)

    def fastest(self, pair: Pair) -> float:
        """The most that a pair reached one way with peer-to-peer asked for, GB/s; 0 where nothing was measured."""
        matrices = ((self.measured.p2p_uni_gb_s, 1.0), (self.measured.p2p_bidir_gb_s, 0.5))
        (i, j), found = pair, [0.0]
        for matrix, part in matrices:
            found += [part * (value or 0.0) for value in (matrix[i][j], matrix[j][i])] if matrix else []
        return max(found)

    @cached_property
    def _fastest(self) -> float:
        return max(map(self.fastest, self.pairs))

    @cached_property
    def link(self) -> tuple[PcieLink, ...]:
        """The most that each GPU's own link can do: of device and slot, else what the board is made for."""
        return tuple(self._link(i) for i in range(self.count))

    def _link(self, i: int) -> PcieLink:
        pcie, board = self.gpu(i).pcie, board_of(self.gpu(i).model)
        trained = pcie.gen if pcie.read == "load" else None
        card = pcie.max_gen or (board[0] if board else None) or trained or pcie.gen
        lanes = pcie.width if self.is_narrow_by_design(i) else pcie.max_width or (board[1] if board else None)
        lanes = lanes or pcie.width
        return PcieLink(
            max_generation=min([card, *self._generations_above(i)]) if card else None,
            max_width=min([lanes, *self._lanes_above(i)]) if lanes else None,
        )

    def _generations_above(self, i: int) -> list[int]:
        """Generations that GPU i's link cannot exceed: of the ports above it and of a switch that it shares.

        A limit below the value that was read is ignored.
        """
        above = [*self.own_ports(i), *(port for port in self.gpu(i).path if port.kind == "switch")]
        read = max(port.gen or 0 for port in (self.gpu(i).pcie, *self.under_load(i)))
        return [port.max_gen for port in above if port.max_gen and port.max_gen >= read]

    def _lanes_above(self, i: int) -> list[int]:
        """Lanes of the ports that serve GPU i alone, with the same exception."""
        read = max(port.width or 0 for port in (self.gpu(i).pcie, *self.under_load(i)))
        return [port.max_width for port in self.own_ports(i) if port.max_width and port.max_width >= read]

    def is_narrow_by_design(self, i: int) -> bool:
        """Fewer lanes than the maximum, on purpose: the port above has no more, a virtual machine's provider chose so,
        or all cards run at half width, as boards that split their slots make them.
        """
        pcie = self.gpu(i).pcie
        if not (pcie.width and pcie.max_width and pcie.width < pcie.max_width):
            return False
        above = [port.max_width for port in self.own_ports(i) if port.max_width]
        if above:
            return min(above) <= pcie.width
        distinct = {(gpu.model, gpu.pcie.width, gpu.pcie.max_width) for gpu in self.seen.gpus}
        return bool(self.host.virtual) or (self.count > 1 and len(distinct) == 1 and pcie.width == 8)

    def is_slot_known(self, i: int) -> bool:
        """Whether the slot's own limits are known, so that the board's data sheet is not needed."""
        return bool(self.gpu(i).pcie.max_gen and self.gpu(i).pcie.max_width)

    @cached_property
    def raw(self) -> tuple[float | None, ...]:
        """Raw rate of each GPU's own link at its best, GB/s; None where it is not known."""
        return tuple(rate_of(link.max_generation, link.max_width) for link in self.link)

    @cached_property
    def uplink(self) -> dict[frozenset[int], float | None]:
        """Raw GB/s of each group's way up at its best; that of its GPUs' own links where its ports were not read."""
        return {group: self._uplink(group) for group in self.groups}

    def _uplink(self, group: frozenset[int]) -> float | None:
        ports = [port for port in self.shared_ports if frozenset(self.behind(port)) == group]
        known = [rate for port in ports if (rate := rate_of(port.max_gen or port.gen, port.max_width or port.width))]
        own = [rate for i in group if (rate := self.raw[i]) is not None]
        return min(known) if known else max(own, default=None)

    def alone(self, pair: Pair, staged: bool) -> float | None:
        """The sum of both directions measured one at a time, GB/s; None where one of them was not."""
        matrix, (i, j) = self.measured.staged_uni_gb_s if staged else self.measured.p2p_uni_gb_s, pair
        there, back = (matrix[i][j], matrix[j][i]) if matrix else (None, None)
        return None if there is None or back is None else there + back

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

    @cached_property
    def access(self) -> dict[Pair, bool | None]:
        """Return access per pair: P2P status, then peer access. Denied in one direction counts as denied."""
        return {pair: self._access(pair) for pair in self.pairs}

    @cached_property
    def granted(self) -> tuple[Pair, ...]:
        """Pairs with peer access."""
        return tuple(pair for pair, access in self.access.items() if access)

    def _access(self, pair: Pair) -> bool | None:
        status, access, ways = self.seen.p2p_status, self.seen.p2p_access, (pair, pair[::-1])
        granted = [status[i][j] == "OK" for i, j in ways if status[i][j]] if status else []
        if isinstance(access, bool):
            granted.append(access)
        elif access:
            granted += [bool(access[i][j]) for i, j in ways if access[i][j] is not None]
        return all(granted) if granted else None

    def status(self, pair: Pair) -> str | None:
        """The first P2P status of a pair that is not OK."""
        matrix = self.seen.p2p_status
        reported = [matrix[i][j] for i, j in (pair, pair[::-1])] if matrix else []
        return next((word for word in reported if word and word != "OK"), None)

    def under_load(self, i: int) -> tuple[Port, ...]:
        """What GPU i's own link was read as while copies ran."""
        return self._under_load.get(i, ())

    @cached_property
    def _under_load(self) -> dict[int, tuple[Port, ...]]:
        found: dict[int, tuple[Port, ...]] = {}
        for row in self.measured.under_load:
            port = Port(gen=row.gen, width=row.width, max_gen=row.max_gen, max_width=row.max_width, read="load")
            found[row.gpu] = (*found.get(row.gpu, ()), port)
        return found

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
