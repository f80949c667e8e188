"""The nvidia-smi of a simulated machine: -L, -q, -q -x, --query-gpu, topo -m, nvlink -s and -e, read from its NVML.

nvidia_smi.txt lists the values. Options that change a GPU, and all others, are errors. Every output is marked
SIMULATED: pages of -q inside, all others on stderr, as programs parse their lines.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

NOT_AVAILABLE = "N/A"
UNINITIALIZED, INVALID, NO_DEVICES, NO_DRIVER, MISMATCH, LOST = 1, 2, 6, 9, 18, 15
WIDTH, INDENT = 51, 4
DEADLINE_S = 30.0
UNITS = {"mib": "MiB", "watts": "W", "celsius": "C", "mhz": "MHz", "percent": "%"}
ON_OFF, YES_NO = ("Disabled", "Enabled"), ("No", "Yes")
ENUMS = {
    "enabled": ON_OFF,
    "yes": YES_NO,
    "compute": ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"),
    "recovery": ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"),
    "virtualization": ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"),
}
BRANDS = {1: "Quadro", 2: "Tesla", 5: "GeForce", 12: "NVIDIA RTX", 14: "NVIDIA", 18: "GeForce RTX"}
ARCHITECTURES = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")
SHORT = {"-L": "--list-gpus", "-q": "--query", "-x": "--xml-format", "-i": "--id", "-a": "--query"}
TAKES = {
    **dict.fromkeys(("--list-gpus", "--query", "--xml-format"), False),
    **dict.fromkeys(("--id", "--query-gpu", "--format"), True),
}
FAILED = {
    NO_DRIVER: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
    "latest NVIDIA driver is installed and running.",
    MISMATCH: "Failed to initialize NVML: Driver/library version mismatch",
}


class Row(NamedTuple):
    """A line of nvidia_smi.txt."""

    label: tuple[str, ...]
    names: tuple[str, ...]
    element: tuple[str, ...]
    form: str
    call: str


class StoppedError(Exception):
    """What nvidia-smi prints instead of a result, and its exit status."""

    def __init__(self, text: str, status: int) -> None:
        self.status = status
        super().__init__(text)


@cache
def rows() -> tuple[Row, ...]:
    """Every value that the simulated nvidia-smi knows."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#")]
    return tuple(
        Row(tuple(filter(None, label.split(" / "))), tuple(names.split()), tuple(element.split("/")), form, call)
        for label, names, element, form, call in cells
    )


class Gpu:
    """A GPU of NVML. Raises StoppedError where nvidia-smi stops: the GPU does not answer."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._seen: dict[str, Any] = {}
        try:
            self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self.bus_id = _text(nvml.nvmlDeviceGetPciInfo(self.handle).busId)
            nvml.nvmlDeviceGetUUID(self.handle)
            nvml.nvmlDeviceGetTemperature(self.handle, 0)
        except nvml.NVMLError as error:
            if error.value not in (LOST, 999) and hasattr(self, "bus_id"):
                return
            where = f"GPU {self.bus_id}" if hasattr(self, "bus_id") else f"GPU{index}"
            why = "GPU is lost.  Reboot the system to recover this GPU" if error.value == LOST else str(error)
            raise StoppedError(f"Unable to determine the device handle for {where}: {why}", error.value) from error

    def value(self, row: Row) -> str:
        """The value of a row as -q prints it, without its unit."""
        from pynvml import NVMLError

        name, *rest = row.call.split()
        try:
            picked = self._pick(name, rest)
            return NOT_AVAILABLE if picked is None else _form(row.form, picked)
        except (NVMLError, AttributeError, IndexError):  # not supported by this GPU, or not known to this NVML
            return NOT_AVAILABLE

    def shown(self, row: Row) -> str:
        """The same with its unit."""
        value = self.value(row)
        return f"{value} {UNITS[row.form]}" if row.form in UNITS and value != NOT_AVAILABLE else value

    def ask(self, name: str, *arguments: int) -> Any:
        """The result of nvmlDeviceGet<name>. Raises NVMLError."""
        return getattr(self._nvml, f"nvmlDeviceGet{name}")(self.handle, *arguments)

    def is_one_of(self, chosen: list[str], index: int) -> bool:
        """Whether -i names this GPU: by its index, UUID or bus id."""
        names = {str(index), _text(self.ask("UUID")), self.bus_id, self.bus_id[4:]}
        return bool(names & {one.strip() for one in chosen})

    def parts(self) -> Iterator[tuple[str, str]]:
        """Name of the profile and UUID of each MIG device."""
        try:
            most = self._nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle)
        except self._nvml.NVMLError:
            return
        for number in range(most):
            try:
                device = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, number)
            except self._nvml.NVMLError:
                continue
            name = _text(self._nvml.nvmlDeviceGetName(device)).rpartition("MIG ")[2]
            yield name, _text(self._nvml.nvmlDeviceGetUUID(device))

    def _pick(self, name: str, rest: list[str]) -> Any:
        if name == "field":
            (value,) = self._nvml.nvmlDeviceGetFieldValues(self.handle, [getattr(self._nvml, rest[0])])
            return None if value.nvmlReturn else value.value.uiVal
        arguments = [int(word) for word in rest if word.isdecimal()]
        key = f"{name} {arguments}"
        if key not in self._seen:
            # As nvidia-smi counts it: without what the driver reserves.
            version = [self._nvml.nvmlMemory_v2] if name == "MemoryInfo" else []
            self._seen[key] = self.ask(name, *arguments, *version)
        got = self._seen[key]
        for word in rest:
            if word.startswith("["):
                got = got[int(word[1:-1])]
            elif word.startswith("."):
                got = getattr(got, word[1:])
        return got


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _form(form: str, value: Any) -> str:
    kind, _, argument = form.partition(" ")
    if kind in ENUMS:
        return str(ENUMS[kind][value])
    if kind.startswith("hex"):
        return f"0x{value:0{kind[3:] or 1}X}"
    written: dict[str, Callable[[], str]] = {
        "mib": lambda: f"{round(value / (1 << 20))}",
        "watts": lambda: f"{value / 1000:.2f}",
        "next": lambda: f"{value + 1}",
        "pstate": lambda: f"P{value}",
        "lanes": lambda: f"{value}x",
        "count": lambda: f"{len(value)}",
        "version": lambda: ".".join(map(str, value)),
        "bit": lambda: "Active" if value & int(argument or "0", 16) else "Not Active",
        "brand": lambda: BRANDS.get(value, "Unknown"),
        "architecture": lambda: ARCHITECTURES[value - 2],
    }
    return written[kind]() if kind in written else _text(value)


def page(gpus: list[Gpu], head: dict[str, str], profile: str) -> Iterator[str]:
    """The lines of ``nvidia-smi -q``."""
    yield from ("", "==============NVSMI LOG==============", "")
    yield _line(0, "Simulated", f"SIMULATED by gpucheck: {profile}")
    yield from (_line(0, name, value) for name, value in head.items())
    yield from ("", _line(0, "Attached GPUs", str(len(gpus))))
    for gpu in gpus:
        yield f"GPU {gpu.bus_id}"
        above: tuple[str, ...] = ()
        for row in rows():
            if not row.label:
                continue
            *parents, name = row.label
            for depth, parent in enumerate(parents):
                if above[: depth + 1] != row.label[: depth + 1]:
                    yield f"{' ' * INDENT * (depth + 1)}{parent}"
            above = tuple(parents)
            yield _line(len(parents) + 1, name, gpu.shown(row))
        yield from _processes(gpu)
        yield ""


def _line(depth: int, name: str, value: str) -> str:
    return f"{f'{chr(32) * INDENT * depth}{name}':<{WIDTH}}: {value}"


def _processes(gpu: Gpu) -> Iterator[str]:
    running = gpu.ask("ComputeRunningProcesses")
    if not running:
        yield _line(1, "Processes", "None")
        return
    yield "    Processes"
    for process in running:
        yield from (_line(2, "Process ID", str(process.pid)), _line(3, "Type", "C"))
        yield _line(3, "Used GPU Memory", f"{(process.usedGpuMemory or 0) >> 20} MiB")


def xml(gpus: list[Gpu], head: dict[str, str], profile: str) -> Iterator[str]:
    """The lines of ``nvidia-smi -q -x``."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    yield from ('<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">')
    yield f"<!-- SIMULATED by gpucheck: {profile} -->"
    root = Element("nvidia_smi_log")
    for name, value in (*head.items(), ("Attached GPUs", str(len(gpus)))):
        SubElement(root, name.lower().replace(" ", "_")).text = value
    for gpu in gpus:
        top = SubElement(root, "gpu", id=gpu.bus_id)
        for row in (row for row in rows() if row.label):
            *parents, tag = row.element
            above = top
            for parent in parents:
                above = above[-1] if len(above) and above[-1].tag == parent else SubElement(above, parent)
            SubElement(above, tag).text = gpu.shown(row)
    indent(root, "\t")
    yield from tostring(root, "unicode", short_empty_elements=False).splitlines()


def csv(gpus: list[Gpu], head: dict[str, str], names: list[str], style: list[str]) -> Iterator[str]:
    """The lines of ``--query-gpu``. Raises StoppedError for a name that nvidia_smi.txt does not have."""
    known = {name: row for row in rows() for name in row.names}
    own = {"driver_version": head["Driver Version"], "count": str(len(gpus)), "timestamp": head["Timestamp"]}
    for name in names:
        if name not in known and name not in own:
            raise StoppedError(f'Field "{name}" is not a valid field to query.', INVALID)
    units = {name: UNITS.get(row.form, "") for name, row in known.items()}
    if "noheader" not in style:
        yield ", ".join(f"{name} [{units[name]}]" if units.get(name) else name for name in names)
    for gpu in gpus:
        cells = []
        for name in names:
            value = own[name] if name in own else gpu.value(known[name])
            value = value.removesuffix("x") if name.startswith("pcie.link.width") else value
            value = f"[{value}]" if value == NOT_AVAILABLE else value
            bare = "nounits" in style or value.startswith("[") or not units.get(name)
            cells.append(value if bare else f"{value} {units[name]}")
        yield ", ".join(cells)


def table(gpus: list[Gpu], head: dict[str, str], profile: str) -> Iterator[str]:
    """The page of ``nvidia-smi`` without options, without the part about processes."""
    known = {name: row for row in rows() for name in row.names}
    wide, driver = f"+{'-' * 89}+", head["Driver Version"]
    parts = f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"
    yield from (f"SIMULATED by gpucheck: {profile}", wide)
    yield f"| NVIDIA-SMI {driver:<23}Driver Version: {driver:<17}CUDA Version: {head['CUDA Version']:<7}|"
    yield from (parts, "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    yield "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |"
    yield "|                                         |                        |               MIG M. |"
    yield parts.replace("-", "=").replace("+", "|", 1)[:-1] + "|"
    for index, gpu in enumerate(gpus):
        say = {name: gpu.value(row) for name, row in known.items()}
        short = {"Enabled": "On", "Disabled": "Off"}
        fan = f"{say['fan.speed']}%" if say["fan.speed"] != NOT_AVAILABLE else NOT_AVAILABLE
        watts = [f"{value.partition('.')[0]}W" for value in (say["power.draw"], say["power.limit"])]
        memory = f"{say['memory.used']}MiB / {say['memory.total']}MiB"
        errors = say["ecc.errors.uncorrected.volatile.total"]
        compute = {"Exclusive_Process": "E. Process"}.get(say["compute_mode"], say["compute_mode"])
        yield (
            f"| {index:>3}  {say['name'][:25]:<25}{short.get(say['persistence_mode'], 'Off'):>9} |"
            f" {gpu.bus_id:>18} {short.get(say['display_active'], 'Off'):>3} | {errors:>20} |"
        )
        yield (
            f"| {fan:<4} {say['temperature.gpu'] + 'C':>4} {say['pstate']:>5} {' / '.join(watts):>23} |"
            f" {memory:>22} | {say['utilization.gpu'] + '%':>7} {compute:>12} |"
        )
        yield f"| {'':39} | {'':22} | {say['mig.mode.current']:>20} |"
        yield parts


def topology() -> Iterator[str]:
    """The lines of ``nvidia-smi topo -m``."""
    from gpucheck.host import live_source
    from gpucheck.topology import of

    found = of(live_source(isolated=True, deadline_s=DEADLINE_S))
    if found is None:
        raise StoppedError("NVML cannot be read", UNINITIALIZED)
    cards = [f"NIC{number}" for number, _ in enumerate(found.nics)]
    names = [f"GPU{gpu.index}" for gpu in found.gpus]
    yield "\t".join(["", *names, *cards, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    for gpu, cells in zip(found.gpus, found.matrix, strict=True):
        to_cards = [nic.classes[gpu.index] for nic in found.nics]
        near = [gpu.cpu_affinity or NOT_AVAILABLE, NOT_AVAILABLE if gpu.numa_node is None else str(gpu.numa_node)]
        written = [" X " if cell == "X" else cell or NOT_AVAILABLE for cell in (*cells, *to_cards)]
        yield "\t".join([f"GPU{gpu.index}", *written, *near, NOT_AVAILABLE])
    for number, nic in enumerate(found.nics):
        yield "\t".join([f"NIC{number}", *(cell or NOT_AVAILABLE for cell in nic.classes)])
    legend = Path(__file__).with_name("nvidia_smi_legend.txt")
    yield from ("", "Legend:", "", *legend.read_text(encoding="utf-8").splitlines())
    if found.nics:
        yield from ("", "NIC Legend:", "", *(f"  NIC{number}: {nic.name}" for number, nic in enumerate(found.nics)))


def nvlinks(what: str) -> Iterator[str]:
    """The lines of ``nvidia-smi nvlink -s``, or -e."""
    from gpucheck.host.nvml.reading import read_nvml
    from gpucheck.model import NvmlReading

    reading = read_nvml(lambda *_: None)
    for gpu in reading.gpus if isinstance(reading, NvmlReading) else ():
        yield f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})"
        for link in gpu.nvlinks:
            if what == "-s":
                speed = f"{(link.speed_mb_s or 0) / 1000:g} GB/s" if link.active else "<inactive>"
                yield f"\t Link {link.link}: {speed}"
                continue
            counts = {"Replay": link.replay_errors, "Recovery": link.recovery_errors, "CRC": link.crc_errors}
            yield from (f"\t Link {link.link}: {name} Errors: {n}" for name, n in counts.items() if n is not None)


def listing(gpus: list[Gpu]) -> Iterator[str]:
    """The lines of ``nvidia-smi -L``."""
    for index, gpu in enumerate(gpus):
        yield f"GPU {index}: {_text(gpu.ask('Name'))} (UUID: {_text(gpu.ask('UUID'))})"
        yield from (
            f"  {f'MIG {name}':<15} Device {number:>2}: (UUID: {uuid})"
            for number, (name, uuid) in enumerate(gpu.parts())
        )


def main(_: str, arguments: list[str]) -> int:
    """Print what nvidia-smi prints for these arguments, and return its exit status."""
    import pynvml

    try:
        words = _words(arguments)
        try:
            pynvml.nvmlInit()
            for line in _answer(pynvml, words):
                sys.stdout.write(f"{line}\n")
        except pynvml.NVMLError as error:
            raise StoppedError(FAILED.get(error.value, f"Failed to initialize NVML: {error}"), error.value) from error
    except StoppedError as stopped:
        sys.stdout.write(f"{stopped}\n")
        return stopped.status
    return 0


def _words(arguments: list[str]) -> dict[str, str]:
    """Option -> its value, empty for one that takes none. Raises StoppedError for an option that is not simulated."""
    if arguments[:1] in (["topo"], ["nvlink"]):
        wanted = {"topo": ("-m", "--matrix"), "nvlink": ("-s", "--status", "-e", "--errorcounters")}[arguments[0]]
        if len(arguments) == 2 and arguments[1] in wanted:
            return {arguments[0]: "-s" if arguments[1] in ("-s", "--status") else "-e"}
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        name = SHORT.get(name, name)
        if name not in TAKES:
            raise StoppedError(
                f"{name}: not simulated. gpucheck simulates {', '.join(TAKES)}, topo -m, nvlink -s.", INVALID
            )
        found[name] = (value if equals else rest.pop(0) if rest else "") if TAKES[name] else ""
    return found


def _answer(nvml: Any, words: dict[str, str]) -> Iterator[str]:
    profile = nvml_profile()
    chosen = words.get("--id", "")
    count = nvml.nvmlDeviceGetCount()
    if not count:
        raise StoppedError("No devices were found", NO_DEVICES)
    if "topo" in words or "nvlink" in words:
        _mark(profile)
        yield from topology() if "topo" in words else nvlinks(words["nvlink"])
        return
    gpus = [Gpu(nvml, index) for index in range(count)]
    gpus = [gpu for index, gpu in enumerate(gpus) if not chosen or gpu.is_one_of(chosen.split(","), index)]
    if not gpus:
        raise StoppedError("No devices were found", NO_DEVICES)
    version = nvml.nvmlSystemGetCudaDriverVersion()
    head = {
        "Timestamp": time.strftime("%a %b %e %H:%M:%S %Y"),
        "Driver Version": _text(nvml.nvmlSystemGetDriverVersion()),
        "CUDA Version": f"{version // 1000}.{version % 1000 // 10}",
    }
    if "--query" in words:
        yield from (xml if "--xml-format" in words else page)(gpus, head, profile)
        return
    if not words.keys() & {"--list-gpus", "--query-gpu"}:
        yield from table(gpus, head, profile)
        return
    _mark(profile)
    style = words.get("--format", "csv").split(",")
    if "--list-gpus" in words:
        yield from listing(gpus)
    else:
        yield from csv(gpus, head, [name.strip() for name in words["--query-gpu"].split(",")], style)


def _mark(profile: str) -> None:
    sys.stderr.write(f"nvidia-smi: SIMULATED by gpucheck: {profile}\n")


def nvml_profile() -> str:
    return str(json.loads((Path(os.environ["GPUCHECK_SIMULATOR"]) / "simulation.json").read_bytes())["profile"])
