"""Next boot: is the driver installed for every kernel that this host may start?

Sources: the nvidia module below /lib/modules/<kernel>, the tree of DKMS, the headers of each kernel, and the firmware's
Secure Boot. A module that was never built shows only after the reboot that needs it; without headers Debian's package
installs with exit status 0 and the module stays ``added``.
"""

from collections.abc import Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, DkmsModule, Finding
from gpucheck.model.facts import Facts

NAME = "next-boot"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the kernels and one for Secure Boot."""
    dkms = [module for module in facts.dkms if module.name.startswith("nvidia")]
    subject = Subject(check=NAME, evidence=_evidence(facts, dkms))
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
    half_built = [module for module in dkms if module.state in ("added", "built")]
    if newest.nvidia is None and running.nvidia is not None:
        code = "software.kernel-without-module" if newest.headers else "software.kernel-without-headers"
        return subject.warns(code, f"no nvidia module for kernel {newest.release}", kernel=newest.release)
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


def _secure_boot(facts: Facts, subject: Subject) -> Finding:
    if not facts.secure_boot:
        return subject.passes("Secure Boot off")
    if facts.driver.loaded_version is not None:
        return subject.passes("Secure Boot on, nvidia module loaded")
    if facts.driver.installed_version is None:
        return subject.skips("software.module-not-installed", "Secure Boot on")
    return subject.fails("software.secure-boot-rejects", "nvidia module not loaded, Secure Boot on")


def _evidence(facts: Facts, dkms: list[DkmsModule]) -> tuple[str, ...]:
    return (
        *(
            f"{k.release}{' (running)' if k.running else ''}: nvidia module {k.nvidia or 'not found'}, "
            f"headers {'installed' if k.headers else 'missing'}"
            for k in facts.kernels
        ),
        *(f"DKMS {m.name}/{m.version}, {m.kernel or 'no kernel'}: {m.state}" for m in dkms),
        f"Secure Boot: {'not reported' if facts.secure_boot is None else 'on' if facts.secure_boot else 'off'}",
    )


NEEDS = ("kernels", "dkms", "driver", "secure_boot", "system")
CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=NEEDS)
