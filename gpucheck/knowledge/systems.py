"""Systems whose GPUs and network cards are known, by what DMI and the PCI bus show."""

from collections.abc import Iterable, Mapping

from gpucheck.knowledge._load import Table, TableRow, table

DMI = "/sys/class/dmi/id/"
DMI_FILES = tuple(f"{DMI}{name}" for name in ("sys_vendor", "product_name", "chassis_asset_tag"))


class KnownSystem(TableRow, frozen=True, kw_only=True):
    """One row; fields as in systems.yml. An empty one is not compared."""

    name: str
    gpus: int
    cards: tuple[str, ...]
    count: int
    source: str
    vendor: str = ""
    product: str = ""
    asset: str = ""
    gpu: tuple[str, ...] = ()
    fixed: bool = False
    chosen: bool = False
    storage: tuple[str, ...] = ()

    def has(self, vendor_id: str, device_id: str) -> bool:
        """Return whether a function is of the product that carries the traffic of GPUs."""
        return f"{vendor_id}:{device_id}".startswith(self.cards)

    def stores(self, vendor_id: str, device_id: str) -> bool:
        """Return whether cards of this product are for storage and management; on some systems also for GPUs."""
        return f"{vendor_id}:{device_id}" in self.storage


class _Systems(Table, frozen=True, kw_only=True):
    rows: tuple[KnownSystem, ...]


def known_system(texts: Mapping[str, str | None], gpus: Iterable[str]) -> KnownSystem | None:
    """Return the system of a host by its DMI files and the PCI device ids of its GPUs; None for any other."""
    vendor, product, asset = ((texts.get(path) or "").strip() for path in DMI_FILES)
    models = [*gpus]
    for row in table("systems.yml", _Systems).rows:
        named = vendor.startswith(row.vendor) and product.startswith(row.product) and asset.startswith(row.asset)
        if named and len(models) <= row.gpus and (not row.gpu or {*models} <= {*row.gpu}) and models:
            return row
    return None
