"""The operating system and the machine around the GPUs."""

import os
import platform
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from gpucheck.host.driver import output, run
from gpucheck.host.readers.files import folder_names, text
from gpucheck.host.readers.packages import DPKG_FORMAT, VERSIONLOCK, dpkg_rows, version_locks
from gpucheck.host.readers.programs import cached_libraries, units
from gpucheck.host.readers.system import os_release, package_family
from gpucheck.model import Limits, LoaderLibrary, PackageVersion, System

# Beginnings of DMI sys_vendor or product_name -> the hypervisor that writes them.
HYPERVISORS = {
    "QEMU": "kvm",
    "KVM": "kvm",
    "Standard PC": "kvm",
    "Amazon EC2": "amazon",
    "Google": "google",
    "Microsoft Corporation": "microsoft",
    "Virtual Machine": "microsoft",
    "VMware": "vmware",
    "innotek": "virtualbox",
    "Xen": "xen",
    "OpenStack": "openstack",
    "Alibaba Cloud": "alibaba",
}
# A file in the root directory of a container -> its engine.
CONTAINER_FILES = {".dockerenv": "docker", "run/.containerenv": "podman"}
# Kubernetes sets its variable in every container of a pod; Apptainer was called Singularity and sets both names.
CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_NAME": "apptainer",
    "SINGULARITY_NAME": "singularity",
}
MOUNT_POINT = 4  # field of /proc/self/mountinfo
# Enroot sets no variable; it mounts this file of the container onto itself, and recognizes its containers by it.
ENROOT_LOCK = "/.lock"
LAYERED = ("overlay", "fuse.fuse-overlayfs", "aufs")


def read_system(root: Path, system_root: Path) -> System:
    """root: where the hardware is, perhaps simulated. system_root: where the operating system is."""
    release = os_release(system_root)
    names = platform.uname()
    return System(
        hostname=names.node,
        os_id=release.get("ID", "linux"),
        os_version=release.get("VERSION_ID", ""),
        os_name=release.get("PRETTY_NAME", release.get("NAME", "Linux")),
        # A simulated machine may state its kernel and architecture; a container's own is that of its engine's host.
        arch=text(root / "proc/sys/kernel/arch") or names.machine,
        kernel=text(root / "proc/sys/kernel/osrelease") or names.release,
        virtual=_hypervisor(root),
        # A simulated machine is whole: the container that it is simulated in hides none of its GPUs.
        container=_container(system_root) if root == system_root else None,
    )


def _hypervisor(root: Path) -> str | None:
    if (root / "dev/dxg").exists():  # the GPU of Windows, as WSL has it
        return "wsl"
    vendor = text(root / "sys/class/dmi/id/sys_vendor") or ""
    product = text(root / "sys/class/dmi/id/product_name") or ""
    for words in () if _bare_metal(vendor, product) else (product, vendor):
        for start, hypervisor in HYPERVISORS.items():
            if words.startswith(start):
                return hypervisor
    kind = text(root / "sys/hypervisor/type")
    if kind:
        return kind
    tree = text(root / "proc/device-tree/hypervisor/compatible")  # ARM; cpuinfo there has no line of flags
    if tree:
        return "xen" if "xen" in tree else "kvm" if "kvm" in tree else "vm"
    flags = (line for line in (text(root / "proc/cpuinfo") or "").splitlines() if line.startswith("flags"))
    return "vm" if " hypervisor" in next(flags, "") else None


def _bare_metal(vendor: str, product: str) -> bool:
    """The clouds sell real machines too, under the same vendor: ``g4dn.metal``, or a Microsoft product with a name."""
    return "metal" in product or (vendor == "Microsoft Corporation" and product != "Virtual Machine")


def _container(system_root: Path) -> str | None:
    """Return the kind of container; containerd and CRI-O leave no file, so Kubernetes shows by its variables alone."""
    for mark, kind in CONTAINER_FILES.items():
        if (system_root / mark).exists():
            return kind
    for variable, kind in CONTAINER_VARIABLES.items():
        if os.environ.get(variable):
            return kind
    named = text(system_root / "run/systemd/container") or os.environ.get("container")  # noqa: SIM112 - systemd writes it small
    return named or _by_its_mounts(system_root)


def _by_its_mounts(system_root: Path) -> str | None:
    """Return ``enroot``, or ``container`` for a root directory that is made of image layers, without systemd.

    A host that boots from a network or a read-only image has an overlay as root too, but systemd runs there.
    """
    lines = (line.partition(" - ") for line in (text(system_root / "proc/self/mountinfo") or "").splitlines())
    # A later mount on the same place hides an earlier one.
    mounted = {place.split()[MOUNT_POINT]: kind.split()[0] for place, dash, kind in lines if dash}
    if ENROOT_LOCK in mounted:
        return "enroot"
    layered = mounted.get("/") in LAYERED
    return "container" if layered and not (system_root / "run/systemd/system").exists() else None


SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only its size is read
STEERING = re.compile(
    r"(NCCL|CUDA|CUDNN|CUBLAS|CUPY|NVIDIA|NVSHMEM|NV_LIBNCCL|TORCH|PYTORCH|TF|XLA|GLOO|UCX|FI|OMP|MKL|KMP)_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|PYTHONPATH"
    # Inside a scheduler's job the devices that CUDA may see are the job's, not a leftover setting.
    r"|SLURM_(JOB_ID|JOB_GPUS|STEP_ID|STEP_GPUS|GPUS_ON_NODE)|PBS_JOBID|LSB_JOBID|FLUX_JOB_ID"
)
# NVIDIA_API_KEY has the right beginning but is a secret.
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)


def read_limits() -> Limits:
    """The size of shared memory from statvfs, the soft resource limits from getrlimit."""
    try:
        shared = os.statvfs(SHARED_MEMORY)
    except OSError:
        shared = None
    return Limits(
        shm_bytes=shared.f_frsize * shared.f_blocks if shared else None,
        shm_free_bytes=shared.f_frsize * shared.f_bavail if shared else None,
        memlock_bytes=_soft(resource.RLIMIT_MEMLOCK),
        nofile=_soft(resource.RLIMIT_NOFILE),
    )


def _soft(which: int) -> int:
    soft, _ = resource.getrlimit(which)
    return -1 if soft == resource.RLIM_INFINITY else soft


def steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer CUDA, NCCL, the loader and the frameworks, by name; a secret among them is left out."""
    return {
        name: environment[name] for name in sorted(environment) if STEERING.fullmatch(name) and not SECRET.search(name)
    }


def read_libraries(names: Iterable[str], search_path: str) -> tuple[LoaderLibrary, ...] | None:
    """Return what the loader would find: the folders of LD_LIBRARY_PATH first, then its cache; names without ``.so``.

    None where the cache cannot be listed, as without ldconfig.
    """
    wanted = tuple(dict.fromkeys(names))
    listing = output(["ldconfig", "-p"]) or output(["/sbin/ldconfig", "-p"])
    if not listing:
        return None
    found: dict[tuple[str, str], LoaderLibrary] = {}  # a file that two paths lead to is one library
    for library in (*_on_search_path(search_path), *cache_entries(listing)):
        if belongs(library.soname, wanted):
            found.setdefault((library.soname, os.path.realpath(library.path)), library)
    return tuple(found.values())


def belongs(soname: str, names: Iterable[str]) -> bool:
    """Whether ``libcudart.so.12`` is one of these names, such as ``libcudart``."""
    return soname.partition(".so")[0] in names and ".so" in soname


def _on_search_path(search_path: str) -> Iterator[LoaderLibrary]:
    """An empty part means the current directory to the loader."""
    for part in search_path.split(":") if search_path else ():
        folder = part or "."
        for name in folder_names(folder) or ():
            if ".so" in name:
                yield LoaderLibrary(soname=name, path=f"{folder.rstrip('/')}/{name}", source="LD_LIBRARY_PATH")


def cache_entries(listing: str) -> Iterator[LoaderLibrary]:
    """The lines of ``ldconfig -p`` for this process' kind of library: on a 64-bit system those marked with a 64."""
    for row in cached_libraries(listing):
        if ("64" in row.kind) == ("64" in platform.machine()):
            yield LoaderLibrary(soname=row.soname, path=row.path, source="ldconfig")


# A name as dpkg and rpm allow it; anything else would be read as an option or a pattern.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
NOT_FOUND = "not-found"
DPKG_FATAL = 2  # dpkg-query(1): 1 is "a name is not known"


def read_packages(
    release: dict[str, str], system_root: Path, names: Iterable[str]
) -> tuple[PackageVersion, ...] | None:
    """Return the installed ones among ``names``, ordered by name; None where the package database cannot be read.

    The distribution decides whether dpkg or rpm is queried: both may be there.
    """
    wanted = sorted({name for name in names if NAME.fullmatch(name)})
    if not wanted:
        return ()
    return _rpm(wanted, system_root) if package_family(release) == "rpm" else _dpkg(wanted)


def _dpkg(names: list[str]) -> tuple[PackageVersion, ...] | None:
    """`apt-mark hold` is the selection that dpkg calls ``hold``, so that one call is enough."""
    done = run(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}", *names])
    if done is None or done.returncode >= DPKG_FATAL:
        return None
    found: dict[str, PackageVersion] = {}
    for row in dpkg_rows(done.stdout):
        if row.installed and row.name not in found:
            found[row.name] = PackageVersion(name=row.name, version=row.version, held=row.held)
    return tuple(found[name] for name in sorted(found))


def _rpm(names: list[str], system_root: Path) -> tuple[PackageVersion, ...] | None:
    """Locks are those of dnf's versionlock plugin, which are patterns over name-epoch:version-release.arch.

    rpm calls every package "not installed" when it cannot open its database; only its error output shows that.
    """
    shape = "%{NAME}\t%{EPOCHNUM}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n"
    locks = version_locks(system_root / VERSIONLOCK.lstrip("/"))
    done = run(["rpm", "--query", f"--queryformat={shape}", *names])
    if done is None or any(line.startswith("error:") for line in done.stderr.splitlines()):
        return None
    found: dict[str, PackageVersion] = {}
    for line in done.stdout.splitlines():
        if line.count("\t") != 3:
            continue  # "package X is not installed"
        name, epoch, release, arch = line.split("\t")
        full = release if epoch == "0" else f"{epoch}:{release}"
        spellings = (f"{name}-{epoch}:{release}.{arch}", f"{name}-{release}.{arch}", f"{name}-{release}", name)
        held = any(fnmatchcase(spelling, lock) for lock in locks for spelling in spellings)
        found[name] = PackageVersion(name=name, version=full, held=held)
    return tuple(found[name] for name in sorted(found))


def read_python_packages(names: Iterable[str]) -> dict[str, str | None]:
    """Versions from the metadata that installers leave, without importing anything; None where not installed."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = dict.fromkeys(names)
    for name in found:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def read_services(names: Iterable[str]) -> dict[str, str | None]:
    """Return systemd's ActiveState by unit name, NOT_FOUND for a unit that it does not know, None without systemd."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    answer = output(["systemctl", "--no-pager", "show", "--property=LoadState,ActiveState", "--", *wanted]) or ""
    blocks = units(answer)
    if len(blocks) != len(wanted):  # systemd is not running, or did not answer for every unit
        return dict.fromkeys(wanted)
    states = (NOT_FOUND if b.get("LoadState") == NOT_FOUND else b.get("ActiveState") for b in blocks)
    return dict(zip(wanted, states, strict=True))
