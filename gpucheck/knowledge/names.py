"""Finding a GPU by what people call it: marketing name, NVML name, PCI device id, or the name of a whole family."""

import re
from functools import cache

from gpucheck.knowledge.gpus import GpuModel, gpus

# The end of an NVML name that does not distinguish products: ``-16GB``, ``-32GB-LS``, `` 80GB HBM2e``.
MEMORY_AND_REVISION = re.compile(r"[-_ ]\d+ ?GB([-_ ]HBM\w+)?([-_ ](N|LS|LSB|TS))?\s*$", re.IGNORECASE)
MAKERS_WORDS = {"nvidia", "tesla", "geforce", "quadro", "gpu"}
GEFORCE_NUMBER = re.compile(r"[rg]tx\d")


def plain(name: str) -> str:
    """Return a typed name, reduced to what distinguishes products: ``NVIDIA GeForce RTX 4090`` -> ``rtx4090``."""
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return [word for word in words if word not in MAKERS_WORDS]


@cache
def _by_name() -> dict[str, GpuModel]:
    """By plain name, and GeForce boards also by their number alone: ``3080ti``."""
    numbers = {
        plain(gpu.name)[3:]: gpu for gpu in gpus() if gpu.cls == "geforce" and GEFORCE_NUMBER.match(plain(gpu.name))
    }
    return numbers | {plain(name): gpu for gpu in gpus() for name in (*gpu.aliases, gpu.name)}


@cache
def _by_pci_id() -> dict[str, GpuModel]:
    return {pci_id: gpu for gpu in gpus() for pci_id in gpu.pci_ids}


def gpu_by_pci_id(device_id: str) -> GpuModel | None:
    """The GPU with this device id (``15f8``, ``0x15F8`` or ``10de:15f8``), or None."""
    return _by_pci_id().get(device_id.lower().removeprefix("10de:").removeprefix("0x"))


def find_gpu(text: str) -> GpuModel | None:
    """The GPU that a marketing name, NVML name or PCI device id means, or None.

    NVML names carry memory sizes and revisions that the table may not (``Tesla V100-SXM2-16GB-N``): these are ignored,
    anything else is not: an RTX 4090 Ti is no RTX 4090.
    """
    known = _by_name()
    key = plain(text)
    if key in known:
        return known[key]
    by_id = gpu_by_pci_id(text.strip())
    if by_id is not None:
        return by_id
    return known.get(plain(MEMORY_AND_REVISION.sub("", text)))


def gpus_of_family(text: str) -> tuple[GpuModel, ...]:
    """Every board that a name without the particulars fits: ``P100``, ``A100 SXM``, ``H100 80GB``; () for a full name.

    Each word of the text must be a word of the board's name or of one of its aliases; ``SXM`` means every SXM form.
    """
    wanted = _words(text)
    if not wanted or find_gpu(text) is not None:
        return ()
    return tuple(gpu for gpu in gpus() if any(_fits(wanted, _words(name)) for name in (gpu.name, *gpu.aliases)))


def _fits(wanted: list[str], words: list[str]) -> bool:
    forms = {re.sub(r"^sxm\d$", "sxm", word) for word in words}
    return words[0] == wanted[0] and all(word in words or word in forms for word in wanted)


def similar_gpus(text: str, count: int = 3) -> tuple[str, ...]:
    """Names near to one that was not found, best first; empty when nothing is near."""
    known = _by_name()
    key = plain(text)
    import difflib

    near = difflib.get_close_matches(key, known, n=count * 2, cutoff=0.5)
    longer = [name for name in known if len(key) > 2 and key in name]
    # ``H10O`` is nearer to the family H100, which is no name of a board, than to the board M10.
    families = dict.fromkeys(_words(gpu.name)[0] for gpu in gpus())
    family = [gpu for word in difflib.get_close_matches(key, families, n=1, cutoff=0.7) for gpu in gpus_of_family(word)]
    found = (*(known[name] for name in longer), *family, *(known[name] for name in near))
    return tuple(dict.fromkeys(gpu.name for gpu in found))[:count]
