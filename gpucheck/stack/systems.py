"""Find an operating system and an architecture by their names in arguments and os-release."""

import difflib
from typing import Literal

from gpucheck.knowledge import tables
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.types import UnknownInput

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
    near = difflib.get_close_matches(text.lower(), systems, n=2, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(systems))}."
    raise UnknownInput(f"operating system {text!r} is not known. {hint}")


def os_of_facts(os_id: str, version: str) -> OperatingSystem:
    """Return the system with this ID and VERSION_ID in os-release. Raises UnknownInput."""
    return find_os(f"{os_id}-{version}")
