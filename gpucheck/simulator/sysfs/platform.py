"""The machine around the devices: processors, NUMA nodes, firmware, boot options, and what the kernel is set to."""

import re

from gpucheck.host.readers.kernels import SECURE_BOOT
from gpucheck.simulator.machine import UPTIME_S, Machine
from gpucheck.simulator.machine.profile import Cpu
from gpucheck.simulator.sysfs.pci import Tree

ATTRIBUTES = bytes((6, 0, 0, 0))  # EFI: readable at boot time and at run time
CPU_OPTIONS = {"GenuineIntel": "intel_iommu", "AuthenticAMD": "amd_iommu"}
THREADS_PER_CORE = 2
ROUTE_COLUMNS = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


def write_platform(machine: Machine, tree: Tree, kernel: str) -> None:
    board = machine.profile.board
    dmi = {"sys_vendor": board.vendor, "product_name": board.product, "bios_vendor": "SIMULATED", "bios_version": "1.0"}
    tree.write("sys/class/dmi/id", dmi)
    tree.raw(SECURE_BOOT, ATTRIBUTES + bytes((int(machine.secure_boot),)))
    tree.write("proc", {"cmdline": command_line(machine, kernel), "uptime": f"{UPTIME_S}.00 {UPTIME_S}.00"})
    interface = machine.profile.default_route
    row = f"{interface}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0" if interface else ""
    tree.write("proc/net", {"route": f"{ROUTE_COLUMNS}\n{row}"})
    tree.write("proc/sys/kernel", {"osrelease": kernel, "arch": machine.profile.arch})
    tree.write("sys/kernel/mm/transparent_hugepage", {"enabled": "always [madvise] never"})
    _nodes(machine, tree)
    _processors(machine, tree)


def command_line(machine: Machine, kernel: str) -> str:
    """What the boot loader passed. Addresses are passed through where iommu=pt asks for it."""
    words = [f"BOOT_IMAGE=/boot/vmlinuz-{kernel}", "root=UUID=00000000-0000-4000-8000-000000000000", "ro", "quiet"]
    option = CPU_OPTIONS.get(machine.cpu.vendor if machine.cpu else "")
    if machine.iommu == "off":
        words += [f"{option}=off"] if option and not machine.profile.virtual else []
    else:
        words += [f"{option}=on"] if option else []
        words += ["iommu=pt"] if machine.iommu == "identity" else []
    return " ".join(words)


def cpu_numbers(cpu_list: str) -> list[int]:
    """The CPUs of a Linux list such as ``0-3,8``."""
    numbers: list[int] = []
    for run in filter(None, cpu_list.split(",")):
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _nodes(machine: Machine, tree: Tree) -> None:
    """CPU nodes, and the memory of GPUs that are nodes themselves; those have no CPU."""
    lists = dict(enumerate(machine.profile.numa_nodes))
    memory = {gpu.memory_node: "" for gpu in machine.gpus if gpu.memory_node is not None}
    for node, cpus in (lists | memory).items():
        tree.write(f"sys/devices/system/node/node{node}", {"cpulist": cpus})
    every = sorted(lists | memory)
    names = {"online": every, "possible": every, "has_memory": every, "has_cpu": sorted(lists)}
    tree.write("sys/devices/system/node", {name: ",".join(map(str, nodes)) for name, nodes in names.items()})


def _processors(machine: Machine, tree: Tree) -> None:
    profile = machine.profile
    sockets = profile.sockets or len(profile.numa_nodes)
    nodes = enumerate(profile.numa_nodes)
    socket_of = {cpu: n * sockets // len(profile.numa_nodes) for n, cpus in nodes for cpu in cpu_numbers(cpus)}
    online = ",".join(sorted(profile.numa_nodes, key=lambda cpus: cpu_numbers(cpus)[:1]))
    tree.write("sys/devices/system/cpu", {"online": online, "possible": online, "present": online})
    if not profile.virtual:
        for number in socket_of:
            scaling = {"scaling_governor": machine.governor, "scaling_driver": "acpi-cpufreq"}
            tree.write(f"sys/devices/system/cpu/cpu{number}/cpufreq", scaling)
    cpu = machine.cpu
    if cpu is None:
        return
    siblings = len(socket_of) // sockets
    blocks = (
        _arm(cpu, n) if cpu.arch == "aarch64" else _x86(cpu, n, socket_of[n], siblings) for n in sorted(socket_of)
    )
    tree.write("proc", {"cpuinfo": "\n\n".join(blocks) + "\n"})


def _x86(cpu: Cpu, number: int, socket: int, siblings: int) -> str:
    cores = max(siblings // THREADS_PER_CORE, 1)
    return (
        f"processor\t: {number}\nvendor_id\t: {cpu.vendor}\ncpu family\t: {cpu.family}\nmodel\t\t: {cpu.model}\n"
        f"model name\t: {cpu.name}\nstepping\t: {cpu.stepping}\nphysical id\t: {socket}\nsiblings\t: {siblings}\n"
        f"core id\t\t: {number % cores}\ncpu cores\t: {cores}\nflags\t\t: {cpu.flags}"
    )


def _arm(cpu: Cpu, number: int) -> str:
    return (
        f"processor\t: {number}\nBogoMIPS\t: 2000.00\nFeatures\t: {cpu.flags}\nCPU implementer\t: {cpu.vendor}\n"
        f"CPU architecture: {cpu.family}\nCPU variant\t: 0x0\nCPU part\t: {cpu.model:#x}\n"
        f"CPU revision\t: {cpu.stepping}"
    )


def next_release(kernel: str) -> str:
    """The release that an update of this kernel would bring: its build number plus one."""
    found = re.match(r"(\d+\.\d+\.\d+-)(\d+)(.*)", kernel) or re.match(r"(\d+\.\d+\.)(\d+)(.*)", kernel)
    return f"{found[1]}{int(found[2]) + 1}{found[3]}" if found else f"{kernel}-next"
