"""PCIe links, the bridges above a GPU, and the IOMMU."""

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import UPTIME_S, Function, Machine
from gpucheck.simulator.machine.profile import AMPERE

# Source validation, request and completion redirect, upstream forwarding: what Linux turns on for an IOMMU
CONTROL = 0x01 | 0x04 | 0x08 | 0x10
# Kind -> the kernel's name of the error, the layer and the word in its log
ERRORS = {
    "correctable": ("RxErr", "Physical Layer", "Corrected"),
    "nonfatal": ("CmpltTO", "Transaction Layer", "Uncorrectable (Non-Fatal)"),
    "fatal": ("DLP", "Data Link Layer", "Uncorrectable (Fatal)"),
}
BITS = {"RxErr": 0, "CmpltTO": 14, "DLP": 4}
LOGGED, APART_S = 3, 60  # the kernel limits how much it logs
OFTEN = 100 * UPTIME_S // 3600  # a hundred an hour since boot
AMD = "nvidia {function}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address={address:#x} flags=0x0030]"
INTEL = (
    "DMAR: [DMA Write NO_PASID] Request device [{device}] fault addr {address:#x} "
    "[fault reason 0x05] PTE Write access is not set"
)
WIDTHS = (1, 2, 4, 8, 16)
SMALL_MIB, MIB = 256, 1 << 20
CORRECTABLE_ERRORS = 173  # field
BEFORE_S = 3600


def _ports(machine: Machine, bus_id: str) -> list[Function]:
    """Every port that can isolate, or those of one switch by its upstream port, or one port."""
    ports = machine.ports()
    if not ports:
        raise ValueError(f"profile {machine.profile.name} shows no port with ACS")
    if bus_id == "all":
        return ports
    chosen = [port for port in ports if bus_id in (port.bus_id, port.parent)]
    if not chosen:
        raise ValueError(f"bus_id={bus_id}: no switch or port with ACS; there are {', '.join(p.bus_id for p in ports)}")
    return chosen


@fault("ACS sends peer-to-peer traffic up to the CPU, at every port or at those of one switch")
def acs_redirect(machine: Machine, bus_id: str = "all") -> None:
    for port in _ports(machine, bus_id):
        port.acs_control = CONTROL & (port.acs_capability or 0)


def _port(machine: Machine, gpu: int, bus_id: str) -> Function:
    """The function that books the errors: the one named, else the far end of the GPU's link."""
    return machine.function(bus_id) if bus_id else machine.slot(machine.gpu(gpu).function)


def _lines(port: Function, error: str, layer: str, severity: str) -> tuple[str, ...]:
    status, ids = 1 << BITS[error], f"[{port.ids}]"
    first = f"pcieport {port.bus_id}: AER: {severity} error message received from {port.bus_id}"
    second = f"pcieport {port.bus_id}: PCIe Bus Error: severity={severity}, type={layer}, (Receiver ID)"
    third = f"pcieport {port.bus_id}:   device {ids} error status/mask={status:08x}/00002000"
    return first, second, third, f"pcieport {port.bus_id}:    [{BITS[error]:2}] {error:<22} (First)"


@fault("PCIe errors are counted and logged at the port above a GPU, or at another function")
def aer_rising(machine: Machine, gpu: int = 0, bus_id: str = "", count: int = OFTEN, kind: str = "correctable") -> None:
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


@fault("the kernel log shows accesses of a GPU that the IOMMU blocked")
def iommu_faults(machine: Machine, gpu: int, count: int = 2) -> None:
    if machine.iommu == "off":
        raise ValueError(f"profile {machine.profile.name} has no IOMMU. Add the fault iommu-translating before")
    function = machine.gpu(gpu).function
    amd = machine.cpu is not None and machine.cpu.vendor == "AuthenticAMD"
    device = function.bus_id.removeprefix("0000:")
    for number in range(count):
        address = 0x3A000000000 + number * 0x1000
        line = (AMD if amd else INTEL).format(function=function.bus_id, device=device, address=address)
        machine.log(line, age_s=60 + number)


@fault("the IOMMU translates the addresses of the GPUs (no iommu=pt)")
def iommu_translating(machine: Machine, type: str = "DMA-FQ") -> None:  # noqa: A002 - the parameter's name, as the kernel's file is called
    check_choice("type", type, ("DMA", "DMA-FQ"))
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and its IOMMU is its host's")
    machine.iommu = type


@fault("a GPU's PCIe link runs at a lower generation than it could")
def pcie_gen(machine: Machine, gpu: int, gen: int, when: str = "always") -> None:
    """A bad riser, retimer or firmware setting: the link trained at a lower generation than both its ends have.

    when=load: the link looks right while the GPU idles, in sysfs too, and falls back under load.
    """
    slow = machine.gpu(gpu)
    if not 1 <= gen < slow.function.generation:
        raise ValueError(f"gen={gen}: choose one of {list(range(1, slow.function.generation))}")
    slow.answer({"pcie.generation": gen}, when)
    if when != "load":
        slow.function.generation = machine.slot(slow.function).generation = gen


@fault("a GPU's PCIe link runs with fewer lanes than it could")
def pcie_width(machine: Machine, gpu: int, width: int, when: str = "always") -> None:
    """A loose card or a bad riser: the link trained with fewer lanes than both its ends have.

    when=load: the link looks right while the GPU idles, in sysfs too, and loses lanes under load.
    """
    narrow = machine.gpu(gpu)
    if width not in WIDTHS or width >= narrow.function.width:
        raise ValueError(f"width={width}: choose one of {[w for w in WIDTHS if w < narrow.function.width]}")
    narrow.answer({"pcie.width": width}, when)
    if when != "load":
        narrow.function.width = machine.slot(narrow.function).width = width


@fault("a GPU's BAR 1 is 256 MiB, or that of all of them: resizable BAR is off")
def rebar_off(machine: Machine, gpu: str = "all") -> None:
    for one in machine.chosen(gpu):
        if not one.function.rebar:
            raise ValueError(f"BAR 1 of the {one.model.name} at {one.function.bus_id} has one size only")
        one.function.bar1_mib = SMALL_MIB
        one.answer({"bar1.total": SMALL_MIB * MIB})


@fault("a GPU's PCIe link replays packets, more every second")
def replay_rising(machine: Machine, gpu: int, rate: int = 5) -> None:
    """A PCIe link that loses packets: the GPU counts replays, more every second.

    rate: replays a second, for an hour already: a counter that starts now would show nothing yet.
    """
    faulty = machine.gpu(gpu)
    if rate < 1:
        raise ValueError("rate=0: one or more a second")
    rising = f"{rate * BEFORE_S}+{rate}/s"
    faulty.answer({"pcie.replays": rising})
    if faulty.model.architecture >= AMPERE:  # the first that counts them by kind
        faulty.answer({f"field.{CORRECTABLE_ERRORS}": rising})


def _link(machine: Machine, gpu: int | None, bus_id: str) -> tuple[Function, Function]:
    if (gpu is None) == (not bus_id):
        raise ValueError("name the link: gpu=N for the topmost one above a GPU, or bus_id= of a port at either end")
    if gpu is not None:
        chain = machine.chain(machine.gpu(gpu).function.bus_id)
        if len(chain) < 2:
            raise ValueError(f"GPU {gpu} is in a slot of the CPU itself; its own link is the fault pcie-gen")
        return chain[0], chain[1]
    port = machine.function(bus_id)
    if port.kind == "switch-upstream" and port.parent is not None:
        return machine.functions[port.parent], port
    below = [one for one in machine.functions.values() if one.parent == bus_id and one.kind == "switch-upstream"]
    if not below:
        raise ValueError(f"bus_id={bus_id}: is no port between a switch and what is above it")
    return port, below[0]


@fault("the link above a PCIe switch runs below what both its ends can")
def uplink_gen(machine: Machine, gen: int, gpu: int | None = None, bus_id: str = "", width: int | None = None) -> None:
    upper, lower = _link(machine, gpu, bus_id)
    if width is not None and (width not in WIDTHS or width > lower.width):
        raise ValueError(f"width={width}: choose one of {[w for w in WIDTHS if w <= lower.width]}")
    if not 1 <= gen <= lower.generation:
        raise ValueError(f"gen={gen}: the link at {lower.bus_id} runs at generation {lower.generation}")
    if gen == lower.generation and width in (None, lower.width):
        raise ValueError(f"gen={gen}: the link at {lower.bus_id} would be as it is")
    for end in (upper, lower):
        end.generation, end.width = gen, width or end.width
