"""What this machine can boot into: kernels and their driver modules, DKMS, and Secure Boot."""

import re
from pathlib import Path

from gpucheck.host.driver import module_version
from gpucheck.host.files import content_of, folder_names
from gpucheck.model import DkmsModule, InstalledKernel

# The directory of a kernel that was removed stays behind where something unpackaged lies in it; these files go with it.
OF_A_KERNEL = ("kernel", "modules.dep", "modules.builtin")
# The variable's name and its vendor GUID: UEFI specification 3.3, EFI_GLOBAL_VARIABLE.
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
ATTRIBUTE_BYTES = 4  # efivarfs puts the variable's attributes before its value


def read_kernels(root: Path, running: str, *, simulated: bool) -> tuple[InstalledKernel, ...]:
    """The directories below /lib/modules that belong to a kernel, the newest release last."""
    modules = root / "lib/modules"
    releases = sorted(folder_names(modules) or (), key=_release_order)
    return tuple(
        InstalledKernel(
            release=release,
            running=release == running,
            headers=(modules / release / "build").is_dir(),
            nvidia=module_version(root, release, simulated=simulated),
        )
        for release in releases
        if release == running or any((modules / release / name).exists() for name in OF_A_KERNEL)
    )


def _release_order(release: str) -> list[tuple[int, str]]:
    """Numbers as numbers: 5.15.0-97 comes before 5.15.0-113."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", release)]


def read_dkms(system_root: Path) -> tuple[DkmsModule, ...]:
    """DKMS' own tree, /var/lib/dkms/NAME/VERSION/KERNEL/ARCH, read as ``dkms status`` reads it and in a moment.

    A built module has a directory ``module``; it is installed where the link NAME/kernel-KERNEL-ARCH points to it.
    """
    tree = system_root / "var/lib/dkms"
    found: list[DkmsModule] = []
    for name in folder_names(tree) or ():
        for version in folder_names(tree / name) or ():
            if (tree / name / version / "source").is_symlink():
                found += _states(tree, name, version)
    return tuple(found)


def _states(tree: Path, name: str, version: str) -> list[DkmsModule]:
    states = []
    for kernel in folder_names(tree / name / version) or ():
        for arch in folder_names(tree / name / version / kernel) or ():
            place = tree / name / version / kernel / arch
            if not (place / "module").is_dir():
                continue
            link = tree / name / f"kernel-{kernel}-{arch}"
            state = "installed" if link.resolve() == place.resolve() else "built"
            states.append(DkmsModule(name=name, version=version, state=state, kernel=kernel))
    return states or [DkmsModule(name=name, version=version, state="added")]


def read_secure_boot(root: Path) -> bool | None:
    """Return the firmware's variable. No EFI means no Secure Boot; without /sys/firmware (container) it is unknown."""
    value = content_of(root / SECURE_BOOT)
    if value is not None and len(value) > ATTRIBUTE_BYTES:
        return value[ATTRIBUTE_BYTES] == 1
    firmware = folder_names(root / "sys/firmware") or ()
    return False if firmware and "efi" not in firmware else None
