"""Next boot: is the driver installed for every kernel that this host may start?

Sources: the nvidia module below /lib/modules/<kernel>, the tree of DKMS, the headers of each kernel, and the firmware's
Secure Boot. A module that was never built shows only after the reboot that needs it; without headers Debian's package
installs with exit status 0 and the module stays ``added``.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, DkmsModule, DriverState, Finding, Host, InstalledKernel
from gpucheck.model.finding.about import About

NAME = "next-boot"
HEADERS = "apt-get install linux-headers-{0}, or dnf install kernel-devel-{0}; then dkms autoinstall -k {0}"
SIGN = "enroll the key that signs the module (mokutil --import), install a signed module, or disable Secure Boot"


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
    about = About(check=NAME, evidence=_evidence(values))
    if values.container is not None:
        yield about.skips(f"not applicable: a {values.container} container does not show what its host boots")
        return
    if not values.kernels:
        yield about.skips("not run: /lib/modules shows no kernel (the host boots an image that is built elsewhere)")
        return
    yield _kernels(values, about)
    if values.secure_boot is not None:
        yield _secure_boot(values, about)


def _kernels(values: Values, about: About) -> Finding:
    newest = values.kernels[-1]
    running = next((kernel for kernel in values.kernels if kernel.running), newest)
    if values.driver.loaded_version is None and running.nvidia is None:
        return about.skips("not run: no driver is loaded or built for the running kernel (see the driver check)")
    half_built = [module for module in values.dkms if module.state in ("added", "built")]
    if newest.nvidia is None and running.nvidia is not None:
        why = f"Kernel {newest.release} is the newest, so the next boot may start it, and it has no nvidia module."
        fix = HEADERS.format(newest.release) if not newest.headers else f"dkms autoinstall -k {newest.release}"
        return about.warns(f"no nvidia module for kernel {newest.release}", None, why, fix, "module-not-built")
    if half_built:
        names = ", ".join(f"{module.name}/{module.version}: {module.state}" for module in half_built)
        why = "DKMS has not installed the module for a kernel: the kernel headers are missing, or the build failed."
        fix = HEADERS.format(running.release)
        return about.warns(f"DKMS module {names}", "installed", why, fix, "module-not-built", "likely")
    if values.dkms and not running.headers:
        why = "DKMS builds the driver on this host, and without the headers it cannot build the next driver update."
        fix = HEADERS.format(running.release)
        seen = f"no kernel headers for {running.release}"
        return about.warns(seen, None, why, fix, "module-not-built", "possible")
    if newest.nvidia is None:
        return about.skips("not run: modinfo finds no nvidia module in /lib/modules, although one is loaded")
    return about.passes(f"nvidia {newest.nvidia} for kernel {newest.release}")


def _secure_boot(values: Values, about: About) -> Finding:
    if not values.secure_boot:
        return about.passes("Secure Boot off")
    if values.driver.loaded_version is not None:
        return about.passes("Secure Boot on, nvidia module loaded")
    if values.driver.installed_version is None:
        return about.skips("not run: no nvidia module is installed (see the driver check)", "Secure Boot on")
    why = "Secure Boot rejects kernel modules that are not signed with an enrolled key."
    return about.fails("nvidia module not loaded, Secure Boot on", None, why, SIGN, "driver-not-loaded", "likely")


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
