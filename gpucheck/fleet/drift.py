"""Attributes that differ between hosts which should be identical."""

from collections import defaultdict
from collections.abc import Sequence

from gpucheck.model import Drift, DriftValue, FleetRow

# What follows from the GPUs is compared among hosts with the same GPUs, the rest among those with the same system.
BY_GPU = ("vbios", "bios", "board", "driver", "module", "cuda")
# These differ by design: they place a host. uplink is looked at for common causes only.
PLACES = ("rack", "system", "uplink")
UNKNOWN = "unknown"
NAMES = 20


def drift(rows: Sequence[FleetRow]) -> tuple[Drift, ...]:
    """One entry an attribute and scope where hosts differ; a value that one host lacks is a value too."""
    scopes: dict[tuple[str, str], list[FleetRow]] = defaultdict(list)
    names = sorted({name for row in rows for name in row.attributes if not _is_place(name)})
    with_attributes = [row for row in rows if row.attributes]
    for name in names:
        for row in with_attributes:
            scope = row.group and _models(row.group) if name in BY_GPU else row.system
            if scope:
                scopes[name, scope].append(row)
    found = (_entry(name, scope, members) for (name, scope), members in scopes.items())
    return tuple(entry for entry in found if entry is not None)


def _entry(name: str, scope: str, members: list[FleetRow]) -> Drift | None:
    hosts: dict[str, list[str]] = defaultdict(list)
    for row in members:
        hosts[", ".join(row.attributes.get(name, ())) or UNKNOWN].append(row.host)
    if len(hosts) < 2 or len(hosts) > max(3, len(members) // 2):
        # Identical, or nearly every host has its own value: a serial number does not drift.
        return None
    values = sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0]))
    return Drift(
        attribute=name,
        scope=scope,
        values=tuple(DriftValue(value=v, hosts=len(n), names=tuple(sorted(n)[:NAMES])) for v, n in values[:NAMES]),
    )


def _is_place(name: str) -> bool:
    return name in PLACES or name.startswith("label ")


def _models(group: str) -> str:
    return group.rpartition(", driver ")[0]
