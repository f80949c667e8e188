"""Each fault of a network card on each SIMULATED machine with RDMA: is it named, and nothing else? Time of many cards.

Nothing is measured on hardware. One card of a GPU on each machine, and one whose use the machine does not show, of
which nothing may be said; on all machines together every check runs in tests/test_fault_matrix.py.
time: processor time of reading RDMA devices and their counters twice and of all network checks; memory by tracemalloc.
The kernel's answer of statistics is a stand-in with 2,000 names an interface.

usage: python bench/network.py >bench/results/network-DATE.md
"""

import ctypes
import fcntl
import os
import struct
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import yaml

from gpucheck import simulator
from gpucheck.checks import network as checks
from gpucheck.host import LiveSource, Place
from gpucheck.host import network as reader
from gpucheck.model import Finding, Verdict, follows
from gpucheck.run import verification as run
from gpucheck.simulator.machine import Machine, build
from gpucheck.topology.nics import NEEDS, cards_of_gpus

ROOT = Path(__file__).parents[1]
FAULTS = yaml.safe_load((ROOT / "tests/data/fault_matrix.yml").read_text(encoding="utf-8"))
PROFILES = sorted(path.stem for path in (Path(simulator.__file__).parent / "profiles").glob("*.yml"))
NAMES_OF_CHECKS = ("network", "kernel-log", "pcie-link", "pcie-path", "pcie-errors")
QUICK = run.select(run.all_steps(), level="quick", only=NAMES_OF_CHECKS, skip=())
MEASURED = run.select(run.all_steps(), level="full", only=("nic-bandwidth",), skip=("quick",))
LOUD = (Verdict.WARN, Verdict.FAIL)


@cache
def library() -> Path:
    """One NVML library for all machines: it reads whichever the environment names."""
    return simulator.activate("p100-pcie-x2") / "lib"


def look(name: str, faults: tuple[str, ...], steps: tuple[run.RunStep, ...]) -> list[Finding]:
    """Return what is found, without what points to another finding. Raises ValueError for a fault it cannot have."""
    with tempfile.TemporaryDirectory() as folder:
        directory, profile = Path(folder) / "machine", simulator.load(name)
        recipe = simulator.Recipe(profile=profile, driver=profile.driver.state(), faults=faults, software=True)
        simulator.write_machine(recipe, directory)
        (directory / "lib").symlink_to(library())
        os.environ["GPUCHECK_SIMULATOR"] = str(directory)
        found = run.verify(LiveSource(Place(isolated=False, deadline_s=5.0, machine=directory)), steps).findings
        return [one for one in found if not follows(one)]


@cache
def machine_of(name: str) -> Machine:
    profile = simulator.load(name)
    return build(profile, profile.driver.state())


@cache
def compute(name: str) -> tuple[list[int], list[int]]:
    """Numbers of the cards of GPUs, and of the others."""
    machine = machine_of(name)
    recipe = simulator.Recipe(profile=machine.profile, driver=machine.profile.driver.state())
    with tempfile.TemporaryDirectory() as folder:
        simulator.write_machine(recipe, Path(folder) / "machine")
        facts = LiveSource(Place(isolated=False, deadline_s=5.0, machine=Path(folder) / "machine")).read(*NEEDS)
    own = {card.pci.bus_id for card in cards_of_gpus(facts)}
    count = len({device.bus_id for device in machine.profile.devices if device.infiniband})
    places = {number: machine.nic(number).bus_id for number in range(count)}
    return [n for n, place in places.items() if place in own], [n for n, place in places.items() if place not in own]


def table() -> None:
    rows = {}
    for row in FAULTS:
        name, _, words = row["fault"].partition(":")
        values = dict(pair.split("=", 1) for pair in words.split(",") if "=" in pair)
        if name.startswith("nic-") and "nic" in values:
            number = values.pop("nic")
            key = ",".join([name, *(f"{k}={v}" for k, v in sorted(values.items()))])
            rows.setdefault(key, []).append((row, number))
    print("| fault | machine | cards | named | cause right | card right | more than that | silent on other cards |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    total: Counter[str] = Counter()
    for key, samples in rows.items():
        for profile in PROFILES:
            machine = machine_of(profile)
            if not any(device.infiniband for device in machine.profile.devices):
                continue
            own, others = compute(profile)
            counts: Counter[str] = Counter()
            steps = MEASURED if samples[0][0].get("steps") == "network" else QUICK
            for number in (*own[1:2], *others[:1]):
                words = key.replace(",", f":nic={number},", 1) if "," in key else f"{key}:nic={number}"
                try:
                    place = machine.nic(number).bus_id
                    found = look(profile, (words,), steps)
                except ValueError:
                    continue
                told = [one for one in found if one.verdict in LOUD or one.verdict is Verdict.UNKNOWN]
                count(counts, samples, place, told, mine=number in own)
            if counts:
                print(f"| {key} | {profile} | " + " | ".join(str(counts[one]) for one in COLUMNS) + " |", flush=True)
                total += counts
    print("| all | | " + " | ".join(str(total[one]) for one in COLUMNS) + " |")


COLUMNS = ("cards", "named", "cause", "card", "more", "silent")


def count(counts: Counter[str], samples: list, place: str, told: list[Finding], *, mine: bool) -> None:
    wanted = {(row["check"], row["cause"]) for row, _ in samples}
    causes = {cause for _, cause in wanted}
    loud = [one for one in told if one.verdict in LOUD]
    if not mine:
        counts["silent"] += not [one for one in loud if one.cause not in causes]
        return
    quiet = all(row["verdict"] in ("pass", "unknown") for row, _ in samples)
    good = [one for one in told if one.cause in causes and any(one.check == check for check, _ in wanted)]
    counts["cards"] += 1
    counts["named"] += bool(good) or (quiet and not loud)
    counts["cause"] += bool(good) or (quiet and not loud)
    counts["card"] += any(place in one.subject or one.subject.startswith(("gpu:", "host")) for one in good) or (
        quiet and not loud
    )
    counts["more"] += len([one for one in loud if one not in good])


def host(folder: Path, cards: int, *, efa: bool) -> Path:
    """A tree of so many devices, with interfaces that this kernel does not have."""
    port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "lid": "0x0"}
    port |= {"link_layer": "Unknown" if efa else "Ethernet"}
    port |= {f"gids/{n}": "0000:" * 7 + "0000" for n in range(16)} | {f"pkeys/{n}": "0xffff" for n in range(8)}
    port |= {f"hw_counters/c{n}": "0" for n in range(60)} | {"hw_counters/local_ack_timeout_err": "3"}
    for number in range(cards):
        for name, text in {"node_type": "1: CA", "fw_ver": "28.39.2048", "board_id": "MT_0000000838"}.items():
            _write(folder / f"sys/class/infiniband/mlx5_{number}/{name}", text)
        for name, text in port.items():
            _write(folder / f"sys/class/infiniband/mlx5_{number}/ports/1/{name}", text)
        if not efa:
            _write(folder / f"sys/class/infiniband/mlx5_{number}/device/net/eth{number}/mtu", "4220")
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="ascii")


NAMES = b"".join(f"rx{n}_xdp_drop".encode().ljust(32, b"\0") for n in range(2000))
ANSWERS = {0x37: (16, struct.pack("I", 2000)), 0x1B: (12, NAMES), 0x1D: (8, struct.pack("2000Q", *range(2000)))}


def _kernel(_door: object, _request: int, argument: bytes) -> None:
    _, address = struct.unpack("16sP16x", argument)
    place, answer = ANSWERS[struct.unpack("I", ctypes.string_at(address, 4))[0]]
    ctypes.memmove(address + place, answer, len(answer))


def times() -> None:
    fcntl.ioctl = _kernel  # type: ignore[assignment]
    every = [import_module(f"gpucheck.checks.network.{one.name}") for one in iter_modules(checks.__path__)]
    print("\n| cards | devices | counters twice | checks | memory |\n| --- | ---: | ---: | ---: | ---: |")
    for cards, efa in ((1, False), (8, False), (16, False), (32, True)):
        with tempfile.TemporaryDirectory() as folder:
            root = host(Path(folder), cards, efa=efa)
            tracemalloc.start()
            reader.read_counters(root, reader.read_rdma(root))
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            clock = [time.process_time()]
            devices = reader.read_rdma(root)
            clock.append(time.process_time())
            before = reader.read_counters(root, devices)
            reader.read_counters(root, devices, before)
            clock.append(time.process_time())
        spent = [f"{1000 * (b - a):.0f} ms" for a, b in pairwise(clock)]
        kind = "EFA" if efa else "with 2,000 statistics each"
        print(f"| {cards} {kind} | {spent[0]} | {spent[1]} | {len(every)} modules | {memory / 1e6:.1f} MB |")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    times()
    if "--times" not in sys.argv:
        table()
