"""Convert names of GPUs and systems to a target."""

import difflib
from collections.abc import Sequence
from typing import Literal

from gpucheck.knowledge import GpuModel, find_gpu, gpu_table, gpus_of_family, similar_gpus, tables
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.types import NotProvisioned, Target, UnknownInput


def target_of(gpus: Sequence[str], os: str, arch: str | None = None, *, nvswitches: int | None = None) -> Target:
    """Return the target. A name of several boards (``A100``) selects one of them, which ``taken`` states.

    Raises UnknownInput with the closest names.
    """
    if not gpus:
        raise UnknownInput("no GPU was named: add --gpu MODEL, for example --gpu 'H100 SXM'")
    many = len(gpus) >= gpu_table().nvswitch_from_gpus if nvswitches is None else nvswitches > 0
    named = {text: _board(text, switched=many) for text in gpus}
    models = sorted((named[text][0] for text in gpus), key=lambda gpu: gpu.pci_ids[0])
    chosen = normal_arch(arch) if arch else ("sbsa" if any(gpu.grace for gpu in models) else "x86_64")
    taken = tuple(note for _, note in named.values() if note)
    return Target(gpus=tuple(models), os=find_os(os), arch=chosen, nvswitches=nvswitches, taken=taken)


def _board(text: str, *, switched: bool) -> tuple[GpuModel, str | None]:
    """Return the board, and the assumption made. switched: the host seems to have NVSwitch."""
    gpu = find_gpu(text)
    if gpu is not None:
        return gpu, None
    family = gpus_of_family(text)
    if len({(gpu.architecture, gpu.compute_capability, gpu.kernel_module, gpu.grace) for gpu in family}) == 1:
        chosen = next((gpu for gpu in family if (gpu.fabric is not None) is switched), family[0])
        if len(family) == 1:
            return chosen, None
        names = ", ".join(gpu.name for gpu in family)
        return chosen, f"{text} can be any of {names}: {chosen.name} is assumed. Name the board to avoid the assumption"
    near = tuple(gpu.name for gpu in family) or similar_gpus(text)
    hint = f"Did you mean {' or '.join(repr(name) for name in near)}?" if near else "No name in the tables is similar."
    raise UnknownInput(f"GPU {text!r} is not known. {hint}")


ARCHITECTURES: dict[str, Literal["x86_64", "sbsa"]] = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "sbsa": "sbsa",
    "aarch64": "sbsa",
    "arm64": "sbsa",
}
# Names before the version, with their names in the tables.
DISTRIBUTIONS = {"almalinux": "alma", "ol": "oracle", "el": "rhel", "redhat": "rhel"}


def normal_arch(text: str) -> Literal["x86_64", "sbsa"]:
    """Return NVIDIA's name of an architecture (server arm64 is ``sbsa``). Raises UnknownInput."""
    try:
        return ARCHITECTURES[text.lower()]
    except KeyError:
        raise UnknownInput(f"architecture {text!r} is not known. Known: x86_64, sbsa (also called aarch64)") from None


def find_os(text: str) -> OperatingSystem:
    """Return the system named ``ubuntu-22.04``, ``rocky-9.6``, ``almalinux-9`` or ``centos-9``. Raises UnknownInput."""
    systems = {system.id: system for system in tables.operating_systems().systems}
    name, _, version = text.strip().lower().replace("_", "-").rpartition("-")
    name = DISTRIBUTIONS.get(name, name)
    candidates = [f"{name}-{version}", f"{name}-{version.partition('.')[0]}"]
    if name == "centos":
        candidates += [f"centos-stream-{version.partition('.')[0]}"]
    for candidate in candidates:
        if candidate in systems:
            return systems[candidate]
    _not_provisioned(name, version)
    near = difflib.get_close_matches(text.lower(), systems, n=2, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(systems))}."
    raise UnknownInput(f"operating system {text!r} is not known. {hint}")


# Names of systems as people write them, with their ID in os-release.
OTHERS = {"amazon": "amzn", "amazonlinux": "amzn", "azl": "azurelinux", "suse": "sles", "opensuse": "opensuse-leap"}


def _not_provisioned(name: str, version: str) -> None:
    """Raise NotProvisioned if this system is one that NVIDIA has packages for, and gpucheck does not install them."""
    known = {row.os_id: row for row in tables.operating_systems().not_provisioned}
    row = known.get(OTHERS.get(name, name))
    if row is None:
        return
    places = {start: folder for start, folder in row.folders.items() if version.lower().startswith(start.lower())}
    start, folder = next(iter(places.items()), (version, ""))
    base = packages().repositories.cuda_url.partition("{")[0]
    raise NotProvisioned(
        f"gpucheck does not provision {row.name} {start}",
        f"install the driver from NVIDIA's packages, {base}{folder}, and use gpucheck verify and the images there",
    )


def os_of_facts(os_id: str, version: str) -> OperatingSystem:
    """Return the system with this ID and VERSION_ID in os-release. Raises UnknownInput."""
    return find_os(f"{os_id}-{version}")
