"""RDMA devices as Linux shows them below /sys/class/infiniband.

Formats: drivers/infiniband/core/sysfs.c of Linux. A field is None where the driver has no such file.
"""

import msgspec


class RdmaPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One port. state, physical: as in sysfs, in lower case and without the number: ``active``, ``linkup``.

    rate_gbit_s: of the link in 10**9 bits a second; means something only while the port is active.
    link_layer: ``infiniband ethernet unknown``. lid: local identifier, 0 on Ethernet. pkeys: partitions (InfiniBand).
    gids: indexes of the RoCE v2 entries with a routed address. mtu: of the interface, in bytes. None: not read.
    """

    number: int
    state: str | None = None
    physical: str | None = None
    rate_gbit_s: float | None = None
    link_layer: str | None = None
    lid: int | None = None
    pkeys: tuple[int, ...] | None = None
    gids: tuple[int, ...] | None = None
    mtu: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state == "active"


class RdmaDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One RDMA device, which a PCI function names (PciDevice.infiniband_names); Soft-RoCE has none.

    is_virtual: a virtual function (SR-IOV) of this host. kind: ``ca`` of a network card, ``switch``, ``rnic`` (iWARP).
    board: identifies the product with its options (PSID, ``MT_0000000838``). model: ``MT4129``.
    card: equal for the functions of one card (its system image GUID).
    route: its interface, or a bond or VLAN of it, has the default route. bond: of which its interface is a leg.
    reporters: of devlink, each a name with its state, ``healthy`` or ``error``; empty where the driver has none.
    verbs: its device file below /dev/infiniband, ``uverbs0``; None where the kernel names none. verbs_error: errno's
    name if this process may not read and write it, as in DeviceFile.
    unread: why it could not be read, None where it was.
    """

    name: str
    is_virtual: bool = False
    kind: str | None = None
    board: str | None = None
    model: str | None = None
    firmware: str | None = None
    card: str | None = None
    ports: tuple[RdmaPort, ...] = ()
    route: bool = False
    bond: str | None = None
    reporters: tuple[tuple[str, str], ...] = ()
    verbs: str | None = None
    verbs_error: str | None = None
    unread: str | None = None


class PortCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of the counters of a port: totals since they were last cleared.

    port: ``mlx5_0/1`` or an interface, empty where the output does not name it. values: by the name that Linux has for
    it, or ethtool. seconds: when it was read, of a clock that only runs forward; None for the output of a tool.
    unread: why it could not be read.
    """

    port: str
    values: dict[str, int] = {}
    seconds: float | None = None
    unread: str | None = None
