"""A marginal PCIe link: its errors are corrected, counted and logged, at the port above the GPU."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import UPTIME_S, Function, Machine

# Kind -> the kernel's name of the error, the layer and the word in its log
ERRORS = {
    "correctable": ("RxErr", "Physical Layer", "Corrected"),
    "nonfatal": ("CmpltTO", "Transaction Layer", "Uncorrectable (Non-Fatal)"),
    "fatal": ("DLP", "Data Link Layer", "Uncorrectable (Fatal)"),
}
BITS = {"RxErr": 0, "CmpltTO": 14, "DLP": 4}
LOGGED, APART_S = 3, 60  # the kernel limits how much it logs
OFTEN = 100 * UPTIME_S // 3600  # a hundred an hour since boot


def _apply(machine: Machine, gpu: int = 0, bus_id: str = "", count: int = OFTEN, kind: str = "correctable") -> None:
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and shows no error reporting")
    check_choice("kind", kind, ERRORS)
    if count < 1:
        raise ValueError(f"count={count}: at least one error")
    port = _port(machine, gpu, bus_id)
    error, layer, severity = ERRORS[kind]
    port.errors[kind, error] = port.errors.get((kind, error), 0) + count
    for number in reversed(range(min(count, LOGGED))):
        for line in _lines(port, error, layer, severity):
            machine.log(line, age_s=APART_S * (number + 1), priority=4)


def _port(machine: Machine, gpu: int, bus_id: str) -> Function:
    """The function that books the errors: the one named, else the far end of the GPU's link."""
    if bus_id:
        if bus_id not in machine.functions:
            raise ValueError(f"bus_id={bus_id}: no such device; there are {', '.join(sorted(machine.functions))}")
        return machine.functions[bus_id]
    return machine.slot(machine.gpu(gpu).function)


def _lines(port: Function, error: str, layer: str, severity: str) -> tuple[str, ...]:
    status, ids = 1 << BITS[error], f"[{port.ids}]"
    first = f"pcieport {port.bus_id}: AER: {severity} error message received from {port.bus_id}"
    second = f"pcieport {port.bus_id}: PCIe Bus Error: severity={severity}, type={layer}, (Receiver ID)"
    third = f"pcieport {port.bus_id}:   device {ids} error status/mask={status:08x}/00002000"
    return first, second, third, f"pcieport {port.bus_id}:    [{BITS[error]:2}] {error:<22} (First)"


FAULT = Fault(
    "aer-rising", "PCIe errors are counted and logged at the port above a GPU, or at another function", _apply
)
