"""What a host answered, unjudged: the parts of its facts."""

import msgspec

from gpucheck.model.host.hardware import Confidential, Gpu

# Codes of gaps and failures that are not NVML's own, which are 0 or more.
CRASHED, LATE, DEFECT, NOT_STARTED = -1, -2, -3, -4
# NVML: the GPU does not have it, the driver's library has no such call, the driver no longer offers it.
NOT_SUPPORTED, NOT_IN_LIBRARY, DEPRECATED = 3, 13, 26


class NvmlGap(msgspec.Struct, frozen=True, kw_only=True):
    """A call without an answer: the call, its subject, and NVML's return code with its name.

    code: DEFECT where NVML may have answered, and the binding or gpucheck could not read it; name is then the error.
    """

    call: str
    subject: str
    code: int
    name: str

    @property
    def absent(self) -> bool:
        """Whether NVML reports that there is no such value here: nothing is wrong, and nothing is known."""
        return self.code in (NOT_SUPPORTED, NOT_IN_LIBRARY, DEPRECATED)


class NvmlReading(msgspec.Struct, frozen=True, kw_only=True, tag="reading"):
    """One pass over NVML. A version is None where NVML did not report it.

    ancestors: n x n nvmlDeviceGetTopologyCommonAncestor classes (``PIX PXB PHB NODE SYS``, ``X`` on the diagonal).
    p2p: NVML P2P status per capability (``read write nvlink``), n x n of ``OK CNS GNS TNS DR NS``, None = not reported.
    gaps: what NVML would not answer. A gap is never a zero.
    """

    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    gpus: tuple[Gpu, ...]
    ancestors: tuple[tuple[str | None, ...], ...] = ()
    p2p: dict[str, tuple[tuple[str | None, ...], ...]] = msgspec.field(default_factory=dict)
    gaps: tuple[NvmlGap, ...] = ()
    confidential: Confidential | None = None


class NvmlFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """NVML could not be used at all.

    code: NVML's return code; CRASHED: a signal ended the child inside the call; LATE: the call did not return in time,
    twice; DEFECT: gpucheck itself failed; NOT_STARTED: there was no child to ask, or it was killed from outside.
    call: the call that failed, or the last one that was entered.
    """

    call: str
    code: int
    name: str
    detail: str = ""


class DriverState(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel side of the driver, from /sys/module and the installed module files; None = not there.

    flavour: ``open`` or ``proprietary``.
    """

    loaded_version: str | None = None
    loaded_flavour: str | None = None
    installed_version: str | None = None
    installed_flavour: str | None = None
    nouveau_loaded: bool = False


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the driver and whether this process may use it: ``nvidiactl``, ``nvidia3``.

    bus_id: of the GPU with this Device Minor in /proc/driver/nvidia/gpus, None where no GPU has it.
    error: of access(2) for reading and writing, else of open(2) if NVML does not list the GPU, by errno's name: EPERM
    is a device cgroup, EACCES the mode of the file, ENOENT no file, and ENXIO, EIO and ENODEV are a GPU that is gone.
    """

    name: str
    bus_id: str | None = None
    error: str | None = None

    @property
    def minor(self) -> int | None:
        """The number of a GPU's file, which is not NVML's index."""
        number = self.name.removeprefix("nvidia")
        return int(number) if number.isdecimal() else None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """The operating system and the host around the GPUs. Every field is as the host reports it.

    virtual: the hypervisor of a virtual machine, which hides the real PCI tree. container: the kind of container this
    process runs in, which may have been given only some of the machine's GPUs. None = neither.
    """

    hostname: str
    os_id: str
    os_version: str
    os_name: str
    arch: str
    kernel: str
    virtual: str | None = None
    container: str | None = None


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """Set if the hardware is simulated: the profile, the faults, and which components are simulated."""

    profile: str
    faults: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()


class PackageVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An installed package. version is the full one: epoch and release included where there are any."""

    name: str
    version: str
    held: bool = False


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the kernel log. seconds: since boot; clock: as printed; None if unknown."""

    text: str
    seconds: float | None = None
    clock: str | None = None


class KernelLog(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's messages since boot, oldest first.

    source: which file or command reported them, None if none could. denied: then, what was tried and why it failed.
    begins_s: seconds after boot of the oldest message that is still there, of any subject.
    """

    lines: tuple[KernelLine, ...] = ()
    source: str | None = None
    denied: str | None = None
    begins_s: float = 0.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What this process may use. shm_bytes: size of /dev/shm, shm_free_bytes: of that still free.

    memlock_bytes: RLIMIT_MEMLOCK, nofile: RLIMIT_NOFILE, both soft; -1 is unlimited.
    """

    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    memlock_bytes: int | None = None
    nofile: int | None = None


class DkmsModule(msgspec.Struct, frozen=True, kw_only=True):
    """A DKMS module for one kernel. state: ``added built installed``, kernel None where only added."""

    name: str
    version: str
    state: str
    kernel: str | None = None


class InstalledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel below /lib/modules. headers: its build directory is there. nvidia: version of its nvidia module."""

    release: str
    running: bool
    headers: bool
    nvidia: str | None = None


class LoaderLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A shared library that the dynamic loader can find: from LD_LIBRARY_PATH or from the loader's cache, in order."""

    soname: str
    path: str
    source: str
