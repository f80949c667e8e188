"""Next boot: will the driver be there for every kernel that this machine may start?

Sources: the nvidia module below /lib/modules/<kernel>, DKMS' own tree, the headers of each kernel, and the firmware's
Secure Boot. A module that was never built is seen only after the reboot that needs it; without headers Debian's
package installs with exit status 0 and leaves the module at ``added``.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, DkmsModule, DriverState, Finding, Host, InstalledKernel
from gpucheck.model.about import About

NAME = "next-boot"
HEADERS = "apt-get install linux-headers-{0}, or dnf install kernel-devel-{0}; then dkms autoinstall -k {0}"
SIGN = "enrol the key that signs the module (mokutil --import), install a signed module, or switch Secure Boot off"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What each kernel has, and what is loaded now."""

    kernels: tuple[InstalledKernel, ...]
    dkms: tuple[DkmsModule, ...]
    driver: DriverState
    secure_boot: bool | None
    container: str | None


def probe(host: Host) -> Values:
    """Ask for kernels, DKMS, the driver and the firmware."""
    return Values(
        kernels=host.kernels(),
        dkms=tuple(module for module in host.dkms() if module.name.startswith("nvidia")),
        driver=host.driver(),
        secure_boot=host.secure_boot(),
        container=host.system().container,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the kernels and one for Secure Boot."""
    about = About(check=NAME, evidence=_evidence(values))
    if values.container is not None:
        yield about.skips(f"a {values.container} container does not see what its host boots")
        return
    if not values.kernels:
        yield about.skips("no kernel is installed below /lib/modules (the image of this machine is made elsewhere)")
        return
    yield _kernels(values, about)
    if values.secure_boot is not None:
        yield _secure_boot(values, about)


def _kernels(values: Values, about: About) -> Finding:
    newest = values.kernels[-1]
    running = next((kernel for kernel in values.kernels if kernel.running), newest)
    if values.driver.loaded_version is None and running.nvidia is None:
        return about.skips("no driver is loaded nor built for the running kernel: see the driver check")
    half_built = [module for module in values.dkms if module.state in ("added", "built")]
    if newest.nvidia is None and running.nvidia is not None:
        why = f"kernel {newest.release} is the newest, so the next boot may start it, and it has no nvidia module"
        fix = HEADERS.format(newest.release) if not newest.headers else f"dkms autoinstall -k {newest.release}"
        return about.warns(f"no module for {newest.release}", "a module for every kernel", why, fix, "module-not-built")
    if half_built:
        names = ", ".join(f"{module.name}/{module.version}: {module.state}" for module in half_built)
        why = (
            "DKMS knows the module and has not installed it for a kernel: its headers are missing, or the build failed"
        )
        fix = HEADERS.format(running.release)
        return about.warns(names, "installed", why, fix, "module-not-built", "likely")
    if values.dkms and not running.headers:
        why = "DKMS builds the driver on this host, and without the headers the next driver update cannot be built"
        fix = HEADERS.format(running.release)
        return about.warns(f"no headers for {running.release}", "headers", why, fix, "module-not-built", "possible")
    if newest.nvidia is None:
        return about.skips("the loaded module lies outside /lib/modules, so nothing tells about the next boot")
    return about.passes(f"nvidia {newest.nvidia} for {newest.release}")


def _secure_boot(values: Values, about: About) -> Finding:
    if not values.secure_boot:
        return about.passes("Secure Boot off")
    if values.driver.loaded_version is not None:
        return about.passes("Secure Boot on, the module is loaded: it is signed with an enrolled key")
    if values.driver.installed_version is None:
        return about.skips("Secure Boot is on and no module is installed: see the driver check", "Secure Boot on")
    why = "Secure Boot refuses kernel modules that no enrolled key has signed"
    return about.fails("Secure Boot on, module not loaded", "a signed module", why, SIGN, "driver-not-loaded", "likely")


def _evidence(values: Values) -> tuple[str, ...]:
    return (
        *(
            f"{k.release}{' (running)' if k.running else ''}: nvidia {k.nvidia}, headers {k.headers}"
            for k in values.kernels
        ),
        *(f"dkms {m.name}/{m.version}, {m.kernel}: {m.state}" for m in values.dkms),
        f"Secure Boot: {values.secure_boot}",
    )


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
