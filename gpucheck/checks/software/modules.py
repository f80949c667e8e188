"""Kernel modules of the driver, the kernels that have them, and the libraries that a program would load."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpucheck.checks._nvml import no_gpu_on_the_bus, on_the_bus, quick_check, some_passed_through
from gpucheck.knowledge import generation_of, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DkmsModule, Finding, LoaderLibrary, NvmlReading, PciDevice
from gpucheck.model.facts import Facts


def module_flavour(facts: Facts) -> Iterator[Finding]:
    """Module flavor: do the loaded kernel modules serve the generation of these GPUs?

    Sources: the banner of /proc/driver/nvidia/version, or the license of the installed module if none is loaded;
    NVIDIA's driver installation guide: Blackwell and Grace need the open modules, GPUs before Turing the proprietary
    ones. With the wrong flavor the module binds no GPU.
    """
    driver, every = facts.driver, on_the_bus(facts)
    gpus = [device for device in every if not device.is_passed_through]
    # The installed module's only if none is loaded, or the same version: another file is not what runs.
    same = driver.loaded_version in (None, driver.installed_version)
    flavour = driver.loaded_flavour or (driver.installed_flavour if same else None)
    host = Subject(check="module-flavour").with_evidence(
        f"loaded: {_module(driver.loaded_version, driver.loaded_flavour)}",
        f"installed: {_module(driver.installed_version, driver.installed_flavour)}",
    )
    if not every:
        yield no_gpu_on_the_bus("module-flavour")
        return
    if not gpus:
        yield some_passed_through(host, every)
        return
    if flavour is None and not driver.loaded_version and not driver.installed_version:
        yield host.skips("software.no-driver-module")
        return
    if flavour is None:
        yield host.unknown("software.module-flavour-unknown")
        return
    wrong = [(gpu, needed) for gpu in gpus if (needed := needed_flavour(gpu)) not in ("either", flavour)]
    for gpu, needed in wrong:
        subject = Subject(check="module-flavour", name=f"gpu:{gpu.bus_id}", evidence=host.evidence)
        seen = f"{flavour} kernel modules"
        yield subject.fails("software.module-flavour-wrong", seen, needed, flavour=flavour, needed=needed)
    if not wrong:
        yield host.passes(f"{flavour} kernel modules")


def _module(version: str | None, flavour: str | None) -> str:
    if version is None and flavour is None:
        return "no module"
    return f"{version or 'version unknown'}, {flavour or 'flavor unknown'}"


def needed_flavour(gpu: PciDevice) -> str:
    """``open``, ``proprietary``, or ``either``, also where the id is in no table."""
    model = gpu_by_pci_id(gpu.device_id)
    if model is not None:
        return model.kernel_module
    generation = generation_of(gpu.device_id)
    return generation.kernel_module if generation is not None else "either"


def next_boot(facts: Facts) -> Iterator[Finding]:
    """Next boot: is the driver installed for every kernel that this host may start?

    Sources: the nvidia module below /lib/modules/<kernel>, the tree of DKMS, the headers of each kernel, and the
    firmware's Secure Boot. A module that was never built shows only after the reboot that needs it; without headers
    Debian's package installs with exit status 0 and the module stays ``added``.
    """
    dkms = [module for module in facts.dkms if module.name.startswith("nvidia")]
    subject = Subject(check="next-boot", evidence=_kernel_lines(facts, dkms))
    if facts.system.container is not None:
        yield subject.skips("software.boots-outside-container", container=facts.system.container)
        return
    if not facts.kernels:
        yield subject.skips("software.no-kernels-listed")
        return
    yield _kernels(facts, dkms, subject)
    if facts.secure_boot is not None:
        yield _secure_boot(facts, subject)


def _kernels(facts: Facts, dkms: list[DkmsModule], subject: Subject) -> Finding:
    newest = facts.kernels[-1]
    running = next((kernel for kernel in facts.kernels if kernel.running), newest)
    if facts.driver.loaded_version is None and running.nvidia is None:
        return subject.skips("software.no-module-for-running-kernel")
    # An older version than the installed one is what an upgrade left behind.
    installed = {one.name: one for one in sorted(dkms, key=_version) if one.state == "installed"}
    half_built = [one for one in dkms if one.state != "installed"]
    half_built = [one for one in half_built if _version(one) >= _version(installed.get(one.name, one))]
    if newest.nvidia is None and running.nvidia is not None:
        code = "software.kernel-without-module" if newest.headers else "software.kernel-without-headers"
        return subject.warns(code, f"no nvidia module for kernel {newest.release}", kernel=newest.release)
    if _changes(facts) and isinstance(facts.nvml, NvmlReading) and facts.nvml.driver_version == running.nvidia:
        seen, values = f"nvidia {newest.nvidia} for kernel {newest.release}", {"loaded": running.nvidia}
        values |= {"kernel": newest.release, "version": newest.nvidia}
        return subject.warns("software.kernel-with-other-module", seen, running.nvidia, **values)
    if half_built:
        names = ", ".join(f"{module.name}/{module.version}: {module.state}" for module in half_built)
        seen = f"DKMS module {names}"
        return subject.warns("software.dkms-not-installed", seen, "installed", kernel=running.release)
    if dkms and not running.headers:
        seen = f"no kernel headers for {running.release}"
        return subject.warns("software.headers-not-installed", seen, kernel=running.release)
    if newest.nvidia is None:
        return subject.skips("software.module-not-found")
    return subject.passes(f"nvidia {newest.nvidia} for kernel {newest.release}")


def _version(module: DkmsModule) -> tuple[int, ...]:
    return tuple(int(number) for number in module.version.split(".") if number.isdecimal())


def _changes(facts: Facts) -> bool:
    """Whether the next boot may load another version than the running kernel, which has its own loaded."""
    loaded, running = facts.driver.loaded_version, next((kernel for kernel in facts.kernels if kernel.running), None)
    return bool(running and running.nvidia == loaded and facts.kernels[-1].nvidia not in (None, loaded))


def _nvml_too(facts: Facts) -> tuple[str, ...]:
    """NVML shows the version of the libraries: they may wait for that boot, too."""
    return ("nvml",) if facts.system.container is None and _changes(facts) else ()


def _secure_boot(facts: Facts, subject: Subject) -> Finding:
    if not facts.secure_boot:
        return subject.passes("Secure Boot off")
    if facts.driver.loaded_version is not None:
        return subject.passes("Secure Boot on, nvidia module loaded")
    if facts.driver.installed_version is None:
        return subject.skips("software.module-not-installed", "Secure Boot on")
    if facts.driver.nouveau_loaded or all(gpu.is_passed_through for gpu in on_the_bus(facts)):
        return subject.skips("software.module-not-awaited", "Secure Boot on")
    return subject.fails("software.secure-boot-rejects", "nvidia module not loaded, Secure Boot on")


def _kernel_lines(facts: Facts, dkms: list[DkmsModule]) -> tuple[str, ...]:
    return (
        *(
            f"{k.release}{' (running)' if k.running else ''}: nvidia module {k.nvidia or 'not found'}, "
            f"headers {'installed' if k.headers else 'missing'}"
            for k in facts.kernels
        ),
        *(f"DKMS {m.name}/{m.version}, {m.kernel or 'no kernel'}: {m.state}" for m in dkms),
        f"Secure Boot: {'not reported' if facts.secure_boot is None else 'on' if facts.secure_boot else 'off'}",
    )


LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcuda", "libnvidia-ml")
LOADED_BY = ("torch", "tensorflow")
FROM_ENVIRONMENT = "LD_LIBRARY_PATH"


def loader(facts: Facts) -> Iterator[Finding]:
    """Loader: would a program find exactly one copy of each CUDA library?

    Source: what the dynamic loader finds, in its order: LD_LIBRARY_PATH first, then its cache. With two copies of a
    library, the one that a program loads depends on how it was started; a copy in LD_LIBRARY_PATH also overrides the
    one that a framework's wheel contains and was built for.
    """
    if facts.libraries is None:
        yield Subject(check="loader").unknown("software.loader-cache-unreadable")
        return
    # In the loader's order; other checks may have asked for other libraries.
    every = [library for library in facts.libraries if library.soname.partition(".so")[0] in LIBRARIES]
    frameworks = tuple(name for name in LOADED_BY if facts.python_packages[name] is not None)
    copies = defaultdict(list)
    for library in every:
        copies[library.soname].append(library)
    folders = {soname: {PurePosixPath(one.path).parent for one in places} for soname, places in copies.items()}
    twice = {soname: places for soname, places in copies.items() if len(folders[soname]) > 1}
    for soname, places in twice.items():
        seen = f"{len(places)} copies of {soname}"
        yield _of_libraries(places).warns("software.library-copies", seen, "1 copy", library=soname)
    # One that is there twice is reported once.
    found = (library for library in every if library.soname not in twice)
    overruling = [library for library in found if library.source == FROM_ENVIRONMENT]
    if overruling and frameworks:
        names = sorted({library.soname for library in overruling})
        seen, code = f"LD_LIBRARY_PATH contains {', '.join(names)}", "software.library-path-overrides"
        yield _of_libraries(overruling).warns(code, seen, libraries=names, frameworks=frameworks)
    if not twice and not (overruling and frameworks):
        subject = Subject(check="loader", evidence=tuple(f"{library.soname}: {library.path}" for library in every))
        if every:
            yield subject.passes(f"{len(copies)} CUDA librar{'y' if len(copies) == 1 else 'ies'}, one copy each")
        else:
            yield subject.skips("software.no-cuda-libraries")


def _of_libraries(libraries: list[LoaderLibrary]) -> Subject:
    return Subject(check="loader", evidence=tuple(f"{library.source}: {library.path}" for library in libraries))


OF_KERNELS = ("kernels", "dkms", "driver", "secure_boot", "system", "pci")
OF_LOADER = (*(f"library:{name}" for name in LIBRARIES), *(f"python:{name}" for name in LOADED_BY))
CHECKS = (
    quick_check("module-flavour", "software", module_flavour, ("pci", "driver")),
    quick_check("next-boot", "software", next_boot, OF_KERNELS, _nvml_too),
    quick_check("loader", "software", loader, OF_LOADER),
)
