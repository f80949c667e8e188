"""Next boot: is the driver installed for every kernel that this host may start?

Sources: the nvidia module below /lib/modules/<kernel>, the tree of DKMS, the headers of each kernel, and the firmware's
Secure Boot. A module that was never built shows only after the reboot that needs it; without headers Debian's package
installs with exit status 0 and the module stays ``added``.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, DkmsModule, DriverState, Finding, Host, InstalledKernel

NAME = "next-boot"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels with their modules, and what is loaded now."""

    kernels: tuple[InstalledKernel, ...]
    dkms: tuple[DkmsModule, ...]
    driver: DriverState
    secure_boot: bool | None
    container: str | None


def probe(host: Host) -> Values:
    return Values(
        kernels=host.kernels(),
        dkms=tuple(module for module in host.dkms() if module.name.startswith("nvidia")),
        driver=host.driver(),
        secure_boot=host.secure_boot(),
        container=host.system().container,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the kernels and one for Secure Boot."""
    subject = Subject(check=NAME, evidence=_evidence(values))
    if values.container is not None:
        yield subject.skips("software.boots-outside-container", container=values.container)
        return
    if not values.kernels:
        yield subject.skips("software.no-kernels-listed")
        return
    yield _kernels(values, subject)
    if values.secure_boot is not None:
        yield _secure_boot(values, subject)


def _kernels(values: Values, subject: Subject) -> Finding:
    newest = values.kernels[-1]
    running = next((kernel for kernel in values.kernels if kernel.running), newest)
    if values.driver.loaded_version is None and running.nvidia is None:
        return subject.skips("software.no-module-for-running-kernel")
    half_built = [module for module in values.dkms if module.state in ("added", "built")]
    if newest.nvidia is None and running.nvidia is not None:
        code = "software.kernel-without-module" if newest.headers else "software.kernel-without-headers"
        return subject.warns(code, f"no nvidia module for kernel {newest.release}", kernel=newest.release)
    if half_built:
        names = ", ".join(f"{module.name}/{module.version}: {module.state}" for module in half_built)
        seen = f"DKMS module {names}"
        return subject.warns("software.dkms-not-installed", seen, "installed", kernel=running.release)
    if values.dkms and not running.headers:
        seen = f"no kernel headers for {running.release}"
        return subject.warns("software.headers-not-installed", seen, kernel=running.release)
    if newest.nvidia is None:
        return subject.skips("software.module-not-found")
    return subject.passes(f"nvidia {newest.nvidia} for kernel {newest.release}")


def _secure_boot(values: Values, subject: Subject) -> Finding:
    if not values.secure_boot:
        return subject.passes("Secure Boot off")
    if values.driver.loaded_version is not None:
        return subject.passes("Secure Boot on, nvidia module loaded")
    if values.driver.installed_version is None:
        return subject.skips("software.module-not-installed", "Secure Boot on")
    return subject.fails("software.secure-boot-rejects", "nvidia module not loaded, Secure Boot on")


def _evidence(values: Values) -> tuple[str, ...]:
    return (
        *(
            f"{k.release}{' (running)' if k.running else ''}: nvidia module {k.nvidia or 'not found'}, "
            f"headers {'installed' if k.headers else 'missing'}"
            for k in values.kernels
        ),
        *(f"DKMS {m.name}/{m.version}, {m.kernel or 'no kernel'}: {m.state}" for m in values.dkms),
        f"Secure Boot: {'not reported' if values.secure_boot is None else 'on' if values.secure_boot else 'off'}",
    )


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
