"""NVLinks, the fabric of the NVSwitches and the services that set it up, NVLink-C2C."""

from gpucheck.simulator.faults import check_choice, fault, sxid_line
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.machine.profile import HOPPER

C2C_STATUS, C2C_SPEED = 171, 172
C2C_COUNTERS = {"interrupt": 231, "replay": 232, "replay-in-a-row": 233}
SUMMARIES = {"unhealthy": 2, "limited": 3}  # NVML_GPU_FABRIC_HEALTH_SUMMARY_*
UNIT = "nvidia-fabricmanager"
MODES = {"off": 1, "minimum": 2, "half": 3, "three-quarters": 4}  # NVML_GPU_NVLINK_BW_MODE_*
# nvmlNvLinkErrorCounter_t up to NVLink 4; fields from NVLink 5 on: recovery events, effective and symbol errors
COUNTERS = {"replay": "0", "recovery": "1", "crc": "2"}
FIELDS = {"recovery": 215, "crc": 219, "replay": 221}
BEFORE_S = 3600
NVLINK_5 = 7  # NVML's version enum


@fault("a link between a GPU and its Grace CPU is down or counts errors")
def c2c_link(machine: Machine, gpu: int, link: int = 0, kind: str = "down", count: int = 500) -> None:
    """count: errors so far."""
    faulty = machine.gpu(gpu)
    if not faulty.model.coherent:
        raise ValueError(f"gpu={gpu}: a {faulty.model.name} has no NVLink-C2C")
    check_choice("kind", kind, ("down", *C2C_COUNTERS))
    if kind == "down":
        faulty.answer({f"field.{C2C_STATUS}.{link}": 0, f"field.{C2C_SPEED}.{link}": 0})
    else:
        faulty.answer({f"field.{C2C_COUNTERS[kind]}.{link}": count})


@fault("the NVSwitch fabric is not up: GPUs are not registered yet")
def fabric_in_progress(machine: Machine) -> None:
    registered = [gpu for gpu in machine.gpus if gpu.model.fabric is not None]
    if not registered:
        raise ValueError(f"no GPU of profile {machine.profile.name} reports an NVSwitch fabric")
    for gpu in registered:
        gpu.fabric_state = "in-progress"


@fault("the NVSwitch fabric reports limited capacity, or is unhealthy, for a GPU")
def fabric_limited(machine: Machine, gpu: int, summary: str = "limited") -> None:
    faulty = machine.gpu(gpu)
    if faulty.model.fabric is None:
        raise ValueError(f"GPU {gpu} ({faulty.model.name}) reports no fabric")
    check_choice("summary", summary, SUMMARIES)
    faulty.answer({"fabric.health_summary": SUMMARIES[summary]})


def bring_down(machine: Machine, state: str) -> None:
    """The service is in this state: no GPU is registered, and no path leads over the switches.

    Raises ValueError on a machine without the service.
    """
    if UNIT not in machine.services:
        raise ValueError(f"profile {machine.profile.name} needs no fabric manager, or its driver is not loaded")
    machine.services[UNIT] = state
    for gpu in machine.gpus:
        gpu.fabric_state = "in-progress"
        gpu.fabric_up = False


@fault("the fabric manager does not run, so that the fabric is not up")
def fabric_manager_stopped(machine: Machine) -> None:
    bring_down(machine, "inactive")


@fault("the fabric manager's version is not the driver's, so that it does not start")
def fabric_manager_version(machine: Machine, version: str = "580.95.05") -> None:
    if version == machine.driver.loaded_version:
        raise ValueError(f"version={version} is the driver's own")
    bring_down(machine, "failed")
    machine.packages[UNIT] = f"{version}-1"


@fault("the driver limits the bandwidth of the NVLinks")
def nvlink_bandwidth_mode(machine: Machine, mode: str = "half") -> None:
    check_choice("mode", mode, MODES)
    linked = [gpu for gpu in machine.gpus if gpu.model.nvlink and gpu.model.fabric]
    if not linked:
        raise ValueError(f"profile {machine.profile.name} has no NVLink with bandwidth modes")
    for gpu in linked:
        if gpu.model.architecture > HOPPER:  # one mode for the system there, one for each GPU later
            gpu.answer({"nvlink.bandwidth_mode": MODES[mode]})
        else:
            machine.nvml["nvlink.bandwidth_mode"] = str(MODES[mode])


@fault("one NVLink of a GPU is down")
def nvlink_down(machine: Machine, gpu: int, link: int) -> None:
    """One NVLink is down; a cable between two GPUs is down at both ends."""
    down = machine.active_link(gpu, link)
    down.active = False
    if down.peer is not None:
        other, port = down.peer
        machine.gpu(other).links[port].active = False


@fault("an NVLink counts errors, more every second")
def nvlink_errors(machine: Machine, gpu: int, link: int = 0, kind: str = "crc", rate: int = 10) -> None:
    """A bad cable or connector: one end of an NVLink counts errors, more every second.

    rate: errors a second, for an hour already: a counter that starts now would show nothing yet.
    """
    machine.active_link(gpu, link)
    faulty = machine.gpu(gpu)
    check_choice("kind", kind, COUNTERS)
    since = rate * BEFORE_S
    if faulty.model.nvlink and faulty.model.nvlink.version >= NVLINK_5:
        faulty.answer({f"field.{FIELDS[kind]}.{link}": f"{since}+{rate}/sull"})
    else:
        faulty.answer({f"nvlink.{link}.errors.{COUNTERS[kind]}": f"{since}+{rate}/s"})


@fault("the subnet manager of NVLink 5 is not installed, so that the fabric is not up")
def nvlsm_missing(machine: Machine) -> None:
    if machine.packages.pop("nvlsm", None) is None:
        raise ValueError(f"profile {machine.profile.name} needs no NVLSM, or its driver is not loaded")
    bring_down(machine, "failed")


@fault("the kernel log holds an SXid of an NVSwitch")
def sxid(machine: Machine, code: int, switch: int = 0, age: int = 600) -> None:
    switches = [function for function in machine.functions.values() if function.kind == "nvswitch"]
    if switch >= len(switches):
        numbers = f"switches 0 to {len(switches) - 1}" if switches else "no NVSwitch on its PCI bus"
        raise ValueError(f"there is no switch {switch}; profile {machine.profile.name} has {numbers}")
    machine.log(sxid_line(switch, switches[switch].bus_id, code), age_s=age)
