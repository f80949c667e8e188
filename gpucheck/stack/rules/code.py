"""Rules about machine code and PTX: the requirements of a program on the GPU and on the driver."""

from gpucheck.knowledge import code_runs, tables
from gpucheck.stack.rules.driver import r1_driver_floor
from gpucheck.stack.types import Clash, Fact
from gpucheck.stack.versions import major, minor, parse


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
