"""What this machine can boot into: kernels and their driver modules, DKMS, and Secure Boot."""

from pathlib import Path

from gpucheck.host.driver import module_version
from gpucheck.host.readers.files import folder_names
from gpucheck.host.readers.kernels import DKMS_TREE, dkms_builds, release_key, secure_boot_variable
from gpucheck.model import DkmsModule, InstalledKernel

# The directory of a kernel that was removed stays behind where something unpackaged lies in it; these files go with it.
OF_A_KERNEL = ("kernel", "modules.dep", "modules.builtin")


def read_kernels(root: Path, running: str, *, simulated: bool) -> tuple[InstalledKernel, ...]:
    """The directories below /lib/modules that belong to a kernel, the newest release last."""
    modules = root / "lib/modules"
    releases = sorted(folder_names(modules) or (), key=release_key)
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


def read_dkms(system_root: Path) -> tuple[DkmsModule, ...]:
    """Return the modules in DKMS' own tree; one without a build for any kernel is "added"."""
    tree = system_root / DKMS_TREE
    found: list[DkmsModule] = []
    for name in folder_names(tree) or ():
        for version in folder_names(tree / name) or ():
            if (tree / name / version / "source").is_symlink():
                found += _states(system_root, name, version)
    return tuple(found)


def _states(system_root: Path, name: str, version: str) -> list[DkmsModule]:
    states = [
        DkmsModule(name=name, version=version, state="installed" if build.installed else "built", kernel=build.kernel)
        for build in dkms_builds(system_root, name, version)
    ]
    return states or [DkmsModule(name=name, version=version, state="added")]


def read_secure_boot(root: Path) -> bool | None:
    """Return the firmware's variable. No EFI means no Secure Boot; without /sys/firmware (container) it is unknown."""
    value = secure_boot_variable(root)
    if value is not None:
        return value
    firmware = folder_names(root / "sys/firmware") or ()
    return False if firmware and "efi" not in firmware else None
