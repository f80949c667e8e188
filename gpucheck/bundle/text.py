"""A bundle as text."""

from gpucheck.bundle.manifest import Manifest
from gpucheck.printable import of_printable

MIB, GIB = 2**20, 2**30


@of_printable
def manifest_text(manifest: Manifest) -> str:
    """What is in it, for whom, how large, and who signed it."""
    mark = " SIMULATED" if manifest.simulated else ""
    total = sum(file.bytes for file in manifest.files.values())
    lines = [
        f"bundle of {manifest.made}, {size(total)}, {len(manifest.files)} files{mark}",
        f"signed by {manifest.key}",
    ]
    for name, system in manifest.systems.items():
        count = sum(map(len, system.versions.values()))
        wheels = sum(path.startswith(f"{system.wheels}/") for path in manifest.files)
        each = [folder_bytes(manifest, folder) for folder in (system.packages, system.wheels)]
        lines.append(
            f"{name}: {count} {system.package_manager} packages ({size(each[0])}), "
            f"{wheels} wheels for Python {system.python} ({size(each[1])})"
        )
        lines += [f"  for group {group}" for group, row in manifest.groups.items() if row.system == name]
        if system.verified is not None:
            lines += [f"  {n} verified with key {key}" for key, n in system.verified.by_key.items()]
        if system.verified is not None and system.verified.unverified:
            names = ", ".join(system.verified.unverified)
            lines.append(f"  unverified, accepted by bundle_accept_unverified: {names}")
        if system.not_offered:
            lines.append(f"  no source offered {', '.join(system.not_offered)}: hosts need to have it already")
    return "\n".join(lines)


def folder_bytes(manifest: Manifest, folder: str) -> int:
    """Bytes of the files below a directory of the bundle."""
    return sum(file.bytes for path, file in manifest.files.items() if path.startswith(f"{folder}/"))


def size(count: int) -> str:
    """``4.2 GiB`` or ``0.3 MiB``."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"
