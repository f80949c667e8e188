"""What is known of a machine and measured on it, wherever that was done: the input of a diagnosis.

Every field may be None or empty: not reported. "Not reported" is never "no", and is omitted from JSON. Bandwidth
is in 10**9 bytes per second, per direction unless the name has bidirectional (then the sum). Matrices are n x n,
row = source, None = not measured.
"""

from typing import Literal

import msgspec

Matrix = tuple[tuple[float | None, ...], ...]
Words = tuple[tuple[str | None, ...], ...]
Flags = tuple[tuple[bool | None, ...], ...]
Damage = Literal["untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip"]


class Port(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PCIe link as trained and as it could be. read: whether it was read under load or idle.

    bus_id: of the device at its end; kind: of a bridge above a GPU. gpus: behind a shared uplink, by index.
    """

    bus_id: str | None = None
    kind: Literal["root-port", "switch", "chipset"] | None = None
    gen: int | None = None
    width: int | None = None
    max_gen: int | None = None
    max_width: int | None = None
    read: Literal["idle", "load"] | None = None
    gpus: tuple[int, ...] = ()


class NvLinkCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many NVLinks of a GPU are up, of how many that exist."""

    active: int | None = None
    total: int | None = None


class ObservedGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU. path: the bridges above it; bar1_mib: the window through which others see its memory, MiB."""

    model: str | None = None
    bus_id: str | None = None
    numa_node: int | None = None
    pcie: Port = Port()
    path: tuple[Port, ...] = ()
    bar1_mib: float | None = None
    nvlinks: NvLinkCount = NvLinkCount()


class AcsReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The raw Access Control Services control register of a bridge."""

    bus_id: str
    control: int


class ObservedHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine around the GPUs. acs_redirect: a tuple names the bridges that redirect."""

    virtual: bool | None = None
    iommu: Literal["off", "identity", "translating"] | None = None
    acs_redirect: bool | tuple[str, ...] | None = None
    acs: tuple[AcsReading, ...] = ()
    sockets: int | None = None
    cpu: str | None = None
    rebar: bool | None = None
    driver: str | None = None


class Method(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How bandwidth was measured: copy engines or a kernel's loads and stores; who drives the copy."""

    engine: Literal["ce", "sm"] | None = None
    direction: Literal["write", "read"] | None = None


class HostDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Copies between host memory of a NUMA node and a GPU."""

    gpu: int
    numa_node: int | None = None
    h2d_gb_s: float | None = None
    d2h_gb_s: float | None = None

    @property
    def slower(self) -> float:
        """The slower of both directions, GB/s; 0 if neither was measured."""
        return min((value for value in (self.h2d_gb_s, self.d2h_gb_s) if value), default=0.0)


class Flow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Copies that ran at the same time (source, destination), and what they reached together."""

    pairs: tuple[tuple[int, int], ...]
    total_gb_s: float


class Hang(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something never returned. with_p2p_off: whether it still hangs with peer-to-peer forbidden."""

    op: str | None = None
    gpus: tuple[int, ...] = ()
    with_p2p_off: bool | None = None


class Collective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One collective's bus bandwidth as nccl-tests defines it. transport: as NCCL names it (``P2P SHM NET NVLS``).

    environment: variables of NCCL and CUDA that its command line set for this run alone.
    """

    op: str | None = None
    ranks: int | None = None
    bytes: int | None = None
    busbw_gb_s: float | None = None
    transport: str | None = None
    wrong: int | None = None
    environment: dict[str, str] = msgspec.field(default_factory=dict)


class UnderLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one GPU reported while copies ran: the best link state seen, why it was throttled, error counters that rose.

    throttled: names of clock event reasons, empty = asked and none, None = not known. errors: counter -> how much it
    rose, None = not known. readings: how many readings there were.
    """

    gpu: int
    gen: int | None = None
    width: int | None = None
    max_gen: int | None = None
    max_width: int | None = None
    throttled: tuple[str, ...] | None = None
    errors: dict[str, int] | None = None
    readings: int = 1


class Damaged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Copies that arrived wrong, all in the same way. pairs: [source, destination].

    words: 8-byte words compared, wrong: of them. host_only: the destination GPU found them right, the host did not.
    at_source: the source held the same wrong words after the copy, so the copy was right.
    """

    pairs: tuple[tuple[int, int], ...]
    damage: Damage | Literal["mixed"] | None = None
    wrong: int | None = None
    words: int | None = None
    loaded_only: bool = False
    host_only: bool = False
    at_source: bool = False
    evidence: tuple[str, ...] = ()


class ObservedNic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One network card with one port. product: equal for cards that can be compared.

    rate_gbit_s: of the active port; None where its driver knows none, as Soft-RoCE. mtu: of its connections, bytes.
    path: the PCIe links from the root port down to the card.
    """

    name: str
    bus_id: str | None = None
    product: str | None = None
    numa_node: int | None = None
    rate_gbit_s: float | None = None
    link_layer: str | None = None
    mtu: int | None = None
    path: tuple[Port, ...] = ()


class NicResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer. nics: of client and server, by index; equal within one card. value: GB/s, or us.

    gpu: whose memory was used, with its link; None for host memory. together: all cards at the same time.
    """

    nics: tuple[int, int]
    value: float
    operation: Literal["write", "read", "send"] = "write"
    gpu: Port | None = None
    together: bool = False


CopyFailureKind = Literal["stuck", "crashed", "error"]


class CopyFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copy that ended without a result: it hung, its process crashed, or CUDA rejected it with a code."""

    kind: CopyFailureKind
    step: str
    pairs: tuple[tuple[int, int], ...] = ()
    code: int | None = None
    detail: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All numbers. p2p: with peer-to-peer requested; staged: with it disabled. hang None = not reported, () = none.

    integrity_bad_pairs: pairs with wrong data; an empty tuple means that all pairs were checked and are correct.
    damaged: the same in detail. bytes_compared: how much data was checked.
    p2p_uni_error, p2p_bidir_error: standard error of the number as a part of it. p2p_uni_alone, p2p_bidir_alone:
    whether nothing else was copied meanwhile; None = not known.
    """

    p2p_uni_gb_s: Matrix | None = None
    p2p_bidir_gb_s: Matrix | None = None
    staged_uni_gb_s: Matrix | None = None
    staged_bidir_gb_s: Matrix | None = None
    p2p_latency_us: Matrix | None = None
    staged_latency_us: Matrix | None = None
    by_class: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    method: Method = Method()
    host_device: tuple[HostDevice, ...] = ()
    flows: tuple[Flow, ...] = ()
    p2p_uni_error: Matrix | None = None
    p2p_uni_alone: Flags | None = None
    p2p_bidir_error: Matrix | None = None
    p2p_bidir_alone: Flags | None = None
    under_load: tuple[UnderLoad, ...] = ()
    integrity_bad_pairs: tuple[tuple[int, int], ...] | None = None
    damage: Damage | None = None
    damaged: tuple[Damaged, ...] = ()
    bytes_compared: int | None = None
    failures: tuple[CopyFailure, ...] = ()
    hang: Hang | bool | None = None
    collectives: tuple[Collective, ...] = ()
    nic_bw_gb_s: tuple[NicResult, ...] = ()
    nic_latency_us: tuple[NicResult, ...] = ()


class Observations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything reported about one host.

    matrix: path classes as nvidia-smi topo -m prints them.
    p2p_access: whether one GPU may address another's memory; True is all pairs, False none.
    p2p_status: as nvidia-smi topo -p2p prints it.
    """

    gpus: tuple[ObservedGpu, ...] = ()
    matrix: Words | None = None
    p2p_access: Flags | bool | None = None
    p2p_status: Words | None = None
    host: ObservedHost = ObservedHost()
    uplinks: tuple[Port, ...] = ()
    nics: tuple[ObservedNic, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    measured: Measured = Measured()
