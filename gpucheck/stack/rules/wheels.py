"""Rules about framework wheels: they include CUDA, so they depend only on the driver and the GPU (R6)."""

from collections.abc import Iterable

from gpucheck.knowledge import code_runs, tables
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.rules.driver import r1_driver_floor
from gpucheck.stack.types import Clash, Fact, Reason, Reasons, Target
from gpucheck.stack.versions import major, minor, parse, request

# Both frameworks have wheels for it, and it is supported until late 2028.
ADDED_PYTHON = "3.12"


def r16_python(os: OperatingSystem, pythons: tuple[str, ...], glibc: str) -> str | None:
    """R16: the Python is the system's if there is a wheel for it, else an additional one; None: glibc is too old."""
    if parse(os.glibc) < parse(glibc):
        return None
    if os.python in pythons:
        return os.python
    if ADDED_PYTHON in pythons:
        return ADDED_PYTHON
    return max((p for p in pythons if not p.endswith("t")), key=parse)


def r16_unconfirmed(os: OperatingSystem) -> Reasons:
    """R16: unconfirmed values of a system that wheels depend on are reported."""
    values = {"python": f"its default Python is {os.python}", "glibc": f"its glibc is {os.glibc}"}
    texts = [text for field, text in values.items() if field in os.unconfirmed]
    if not texts:
        return ()
    text = f"{os.name}: that {' and that '.join(texts)} was not confirmed"
    return (Reason(component="os", because=text, rule="R16", source="env-dumps", confirmed=False),)


def glibc_clash(component: str, what: str, glibc: str, os: OperatingSystem) -> Clash:
    """Return the clash of a wheel that needs a newer glibc than the system has."""
    between = (
        Fact(f"the wheels of {what} need glibc {glibc}", "wheel-bytes"),
        Fact(f"{os.name} has glibc {os.glibc}", "env-dumps"),
    )
    return Clash(component=component, rule="R16", between=between, because=f"{what} does not install on {os.name}")


def not_known(component: str, wanted: str, source: str, target: Target, known: Iterable[str]) -> Clash:
    """Return the clash of a framework without a release. known: every version in the tables."""
    between = (
        Fact(f"{component} {wanted} is requested", "the specification"),
        Fact(f"the tables have no confirmed GPU build of it for {target.arch}", source),
    )
    return Clash(
        component=component,
        rule="R20" if target.arch == "sbsa" else "R11",
        between=between,
        because=f"no {component} {wanted} with GPU support for {target.arch} is known",
        unknown=not any(request(wanted).matches(version) for version in known),
    )


def r3_ptx_needs_full_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R3: a GPU for which a program has only PTX needs a driver as new as the toolkit that built it."""
    full = next((t.driver_full for t in reversed(tables.cuda().toolkits) if minor(t.version) == minor(cuda)), None)
    if full is not None and parse(driver) >= parse(full):
        return None
    between = (
        Fact(f"{what} has only PTX of CUDA {cuda} for this GPU, which the driver must translate", "wheel-bytes"),
        Fact(f"PTX translation needs driver {full or '(not known)'}, the driver is {driver}", "cuda-compat, cuda-rn"),
    )
    because = f"driver {driver} cannot translate the PTX in {what}"
    return Clash(component=component, rule="R3", between=between, because=because)


def r6_wheel_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R6: a wheel uses only the driver of the host, so R1 applies with the wheel's own CUDA major."""
    return r1_driver_floor(major(cuda), driver, component, what)


def r5_runs(capability: str, archs: tuple[int, ...]) -> bool:
    """R5: machine code for X.Y runs on X.Z with Z >= Y, and never on another X."""
    return code_runs(capability, archs)
