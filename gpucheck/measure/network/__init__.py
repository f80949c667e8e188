"""Measure network cards with perftest: each alone, in pairs, all at the same time; counters are read between the steps.

On a simulated machine nothing is run: its numbers follow from its links.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.host.network import read_counters
from gpucheck.host.simulated import machine_directory, surroundings
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.network import nccl
from gpucheck.measure.network.perftest import PER_GIGABIT, PROGRAMS, Outcome, Runner, Transfer, measured, simulated
from gpucheck.measure.planning.plan import rounds as schedule
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Finding, PciDevice, PcieLink
from gpucheck.model.answer import Clock
from gpucheck.model.diagnosis.observations import Measured, NicResult, Observations, ObservedHost, ObservedNic, Port
from gpucheck.model.facts import Facts, Source
from gpucheck.model.host.network import PortCounters, RdmaDevice, RdmaPort
from gpucheck.model.network import NetworkReport, NicMeasurement, Transferred
from gpucheck.processes.capture import completed
from gpucheck.processes.signals import Cut
from gpucheck.topology.nics import (
    AMAZON,
    LEAST_MTU,
    Card,
    below_one_switch,
    cards_of_gpus,
    expected,
    may_have_gpudirect,
)
from gpucheck.topology.nics import NEEDS as CARDS

CHECK = "nic-bandwidth"
MODULES = "/proc/modules"
NEEDS = (*CARDS, "system", "simulation", "driver", "nvml", f"text:{MODULES}")
WITHIN_A_CARD = ("write", "read", "send", "latency")
WITH_GPU = ("write", "read")
# A job moves more; what keeps a file system or a fabric alive moves less.
BUSY_BYTES_S, WATCHED_S = 10**8, 0.25
WORD = 4  # the kernel counts data of InfiniBand ports by four bytes
VERSION = re.compile(r"Version:\s*([\w.+-]{1,40})")
METHOD = (
    "within a card: server and client on the same device; between cards: rounds of pairs that share no PCIe link; last "
    "all cards at once, each within itself",
    "processes and their memory are on the NUMA node of the card; average over the time of a test",
    "limit: the least of port rate times payload share at its MTU, PCIe path as it is linked, and the link of the GPU",
    "what is below 90 % of the limit is measured again alone, and the better result counts",
)


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run. nics: names or bus ids, by default the cards of the GPUs, else all with an active port.

    contended: also cards that others use. seconds: of one test. nccl: also an all_reduce through each card.
    """

    nics: tuple[str, ...] = ()
    gpu_memory: Literal["auto", "yes", "no"] = "auto"
    pairs: bool = False
    nccl: bool = False
    contended: bool = False
    seconds: int = 1


class Nic(NamedTuple):
    """A card to measure. gpu: one below its switch, with the link as it could be; uuid: its name for CUDA."""

    seen: ObservedNic
    device: RdmaDevice
    port: RdmaPort
    gpu: Port | None = None
    uuid: str = ""


Doubtful = Callable[[Observations], Iterable[NicResult]]


def measure(
    source: Source,
    options: NetworkOptions,
    doubtful: Doubtful,
    evaluate: Callable[[NetworkReport, Transferred], NetworkReport],
    on_step: Callable[[str], None] = lambda _: None,
    keep: Callable[[NetworkReport], None] = lambda _: None,
) -> NetworkReport:
    """Run everything. Raises Unmeasurable if an option names what is not there.

    evaluate: gets the report with findings about what was not run, and returns it with all. keep: gets that as soon as
    it is made: of what was measured when a signal ends the run, too.
    """
    clock = Clock()
    facts = source.read(*NEEDS)
    machine = machine_directory()
    root = machine / "root" if machine is not None else Path("/")
    nics, findings = _chosen(facts, options)
    if machine is None and any(shutil.which(program) is None for program in PROGRAMS.values()):
        nics, findings = (), [Subject(check=CHECK).skips("nic.no-perftest", "no ib_write_bw")]
    elif not nics and not findings:
        findings = [Subject(check=CHECK).skips("nic.no-active-card", f"{len(facts.rdma)} RDMA devices")]
    busy = {} if options.contended else _busy(root, nics)
    findings += [
        _about(nic).unknown("nic.card-in-use", f"{busy[nic.seen.name]:.2f} GB/s", device=nic.seen.name)
        for nic in nics
        if nic.seen.name in busy
    ]
    nics = tuple(nic for nic in nics if nic.seen.name not in busy)
    engine, helps = _engine() if machine is None and nics else ("simulated", "--use_cuda")
    memories, none = _memories(facts, nics, options, helps)
    run = measured if machine is None else simulated(machine, _healthy(facts))
    direct = frozenset(nic.seen.name for nic in nics if nic.gpu is not None) if _ways(facts) else frozenset[str]()
    reduced: list[NicMeasurement] = []
    rows = _Rows(nics, run, root, on_step, virtual=facts.system.virtual is not None)

    moving = surroundings(machine).moving if machine is not None else None
    devices = [replace(nic.device, ports=(nic.port,)) for nic in nics]
    before = {one.port: one for one in read_counters(root, devices, (), moving)}

    cut = Cut()
    with cut:
        for group in plan(nics, options, memories):
            rows.take(group)
        rows.repeat(doubtful)
        if options.nccl and nics:
            made = nccl.measured if machine is None else nccl.simulated(surroundings(machine).network, direct=direct)
            lacking = nccl.lacking(facts.gpus, simulated=facts.simulation is not None, contended=options.contended)
            findings += [Subject(check="nic-nccl").skips(*lacking)] if lacking else []
            for nic in rows.nics if not lacking else ():
                on_step(f"all_reduce through {nic.seen.name}")
                reduced.append(nccl.through(nic, facts.gpus, made, virtual=rows.virtual))

    def ran() -> NetworkReport:
        after = read_counters(root, devices, before.values(), moving)
        readings = tuple(one for last in after if last.port in before for one in (before[last.port], last))
        seen = rows.observations()
        report = NetworkReport(
            **clock.answer(facts, (*findings, *none)),
            engine=engine if nics else "none",
            results=(*rows.results, *reduced),
            counters=_risen(readings),
            method=METHOD,
            observations=seen,
        )
        mtus = {nic.name: nic.mtu or LEAST_MTU for nic in seen.nics}
        rates = (row.value * 1e9 / mtus[row.client] for row in rows.results if row.value and row.unit == "GB/s")
        moved = Transferred(
            results=report.results,
            nics=seen.nics,
            counters=readings,
            packets=sum(rates) * options.seconds,
            direct=direct,
            gone=frozenset(rows.gone),
            interrupted=cut.signal is not None,
        )
        return evaluate(report, moved)

    return cut.report(ran, keep)


def plan(nics: Sequence[Nic], options: NetworkOptions, memories: Sequence[str]) -> Iterator[list[Transfer]]:
    """Yield what runs at the same time. memories: ways to that of a GPU."""

    def test(what: str, a: Nic, b: Nic, **more: Any) -> Transfer:
        return Transfer(what, a.seen, b.seen, (a.port.number, b.port.number), seconds=options.seconds, **more)

    for nic in nics:
        yield from ([test(what, nic, nic)] for what in WITHIN_A_CARD)
        for memory in memories if nic.gpu else ():
            yield from ([test(what, nic, nic, gpu=nic.gpu, uuid=nic.uuid, memory=memory)] for what in WITH_GPU)
    for pairs in rounds(nics) if options.pairs else ():
        yield [test("write", a, b) for a, b in pairs]
        yield [test("write", b, a) for a, b in pairs]
    if len(nics) > 1:
        yield [test("write", nic, nic, together=True) for nic in nics]


def rounds(nics: Sequence[Nic]) -> list[list[tuple[Nic, Nic]]]:
    """Return all pairs in rounds, of which no two share a card or a PCIe link."""
    pairs = list(combinations(range(len(nics)), 2))
    uses = [{str(port.bus_id) for place in pair for port in nics[place].seen.path} for pair in pairs]
    return [[(nics[a], nics[b]) for a, b in (pairs[i] for i in members)] for members in schedule(uses, pairs)]


class _Rows:
    def __init__(
        self, nics: Sequence[Nic], run: Runner, root: Path, on_step: Callable[[str], None], *, virtual: bool
    ) -> None:
        self.nics, self.run, self.root, self.on_step, self.virtual = nics, run, root, on_step, virtual
        self.tests: list[Transfer] = []
        self.results: list[NicMeasurement] = []
        self.gone: set[str] = set()

    def take(self, group: Sequence[Transfer]) -> None:
        """Run these at the same time. A card that has left the host is not asked again."""
        tests = [test for test in group if not {test.client.name, test.server.name} & self.gone]
        if not tests:
            return
        self.on_step(f"{tests[0].operation} of {', '.join(test.client.name for test in tests)}")
        before = [self._sent(test) for test in tests]
        outcomes = self.run(tests)
        self.tests += tests
        self.results += [self._result(*one) for one in zip(tests, outcomes, before, strict=True)]

    def repeat(self, doubtful: Doubtful) -> None:
        """Measure again, alone, what is low; the better result counts."""
        found = doubtful(self.observations())
        low = [(one.nics, one.operation, one.gpu, one.together, one.value) for one in found]
        for place, (test, row) in enumerate(zip(tuple(self.tests), tuple(self.results), strict=True)):
            mine = self._numbers(test), test.operation, test.gpu, test.together, row.value
            if row.value is None or mine not in low:
                continue
            self.on_step(f"{test.operation} of {test.client.name} again")
            outcome = self.run([test])[0]
            again = None if isinstance(outcome, str) else round(outcome.value * PER_GIGABIT, 3)
            self.results[place] = replace(row, alone=row.value if again is None else again)

    def _numbers(self, test: Transfer) -> tuple[int, int]:
        names = [nic.seen.name for nic in self.nics]
        return names.index(test.client.name), names.index(test.server.name)

    def _result(self, test: Transfer, outcome: Outcome, before: int | None) -> NicMeasurement:
        row = NicMeasurement(
            client=test.client.name,
            server=test.server.name,
            operation=test.operation,
            memory=test.memory,
            gpu=test.gpu.bus_id if test.gpu else None,
            together=test.together,
            unit="us" if test.operation == "latency" else "GB/s",
        )
        if isinstance(outcome, str):
            there = self.root / "sys/class/infiniband"
            self.gone |= {name for name in (row.client, row.server) if not (there / name).exists()}
            return replace(row, note=outcome)
        if test.operation == "latency":
            return replace(row, value=outcome.value)
        self._set_mtu(test, outcome.mtu)
        value = round(outcome.value * PER_GIGABIT, 3)
        sent = self._sent(test)
        wire = None if before is None or sent is None else sent - before > value * 1e9 * test.seconds / 2
        return replace(row, value=value, wire=wire)

    def _set_mtu(self, test: Transfer, mtu: int | None) -> None:
        """Only a connection shows the MTU that is in use."""
        self.nics = [
            nic._replace(seen=replace(nic.seen, mtu=mtu))
            if mtu and nic.seen.name in (test.client.name, test.server.name)
            else nic
            for nic in self.nics
        ]

    def _sent(self, test: Transfer) -> int | None:
        traffic = _traffic(self.root, test.client.name, test.ports[0])
        return traffic[0] if traffic is not None else None

    def observations(self) -> Observations:
        """Return what was measured, as a diagnosis takes it; the results get their limits."""
        seen = tuple(nic.seen for nic in self.nics)
        found: dict[bool, list[NicResult]] = {True: [], False: []}
        for place, (test, row) in enumerate(zip(self.tests, self.results, strict=True)):
            if row.value is None:
                continue
            latency = test.operation == "latency"
            best = max(row.value, row.alone or 0.0)
            one = NicResult(
                nics=self._numbers(test),
                value=best,
                operation="write" if latency else test.operation,  # type: ignore[arg-type]
                gpu=test.gpu,
                together=test.together,
            )
            found[latency].append(one)
            limit = None if latency else expected(seen, one, virtual=self.virtual)
            if limit is not None:
                self.results[place] = replace(row, expected_gb_s=round(limit.gb_s, 2), basis=limit.basis)
        measured = Measured(nic_bw_gb_s=tuple(found[False]), nic_latency_us=tuple(found[True]))
        return Observations(nics=seen, host=ObservedHost(virtual=self.virtual), measured=measured)


def _about(nic: Nic) -> Subject:
    return Subject(check=CHECK, name=f"nic:{nic.seen.bus_id or nic.seen.name}")


def _chosen(facts: Facts, options: NetworkOptions) -> tuple[tuple[Nic, ...], list[Finding]]:
    functions = {name: function for function in facts.pci for name in function.infiniband_names}
    every = {device.name: device for device in facts.rdma}
    ids = {functions[name].bus_id: name for name in every if name in functions}
    for word in options.nics:
        if word not in every and word not in ids:
            there = ", ".join(f"{name} ({functions[name].bus_id})" if name in functions else name for name in every)
            finding = Subject(check=CHECK).unknown("nic.not-there", f"--nics {word}", there=there or "none")
            raise Unmeasurable(finding, usage=True)
    cards = cards_of_gpus(facts)
    of_gpus = [card.device.name for card in cards]
    named = [ids.get(word, word) for word in options.nics] or of_gpus or [n for n in every if not every[n].is_virtual]
    chosen: list[Nic] = []
    findings: list[Finding] = []
    for name in dict.fromkeys(named):
        function = functions.get(name)
        subject = Subject(check=CHECK, name=f"nic:{function.bus_id if function else name}")
        port = next((port for port in every[name].ports if port.is_active), None)
        if function is not None and function.vendor_id == AMAZON:
            findings.append(subject.skips("nic.card-is-efa", device=name))
        elif port is not None:
            chosen.append(_nic(every[name], port, function, facts))
        elif options.nics or name in _only_cards(cards):
            number = every[name].ports[0].number if every[name].ports else 1
            findings.append(subject.unknown("nic.port-not-active", device=name, port=number))
    return tuple(chosen), findings


def _only_cards(cards: Sequence[Card]) -> set[str]:
    """Return cards without an active port whose GPUs have no other, while other GPUs have one."""
    up = [card for card in cards if any(port.is_active for port in card.device.ports)]
    used = {place for card in up for place in (card.slot, *card.gpus)}
    return {card.device.name for card in cards if up and used.isdisjoint((card.slot, *card.gpus))}


def _nic(device: RdmaDevice, port: RdmaPort, function: PciDevice | None, facts: Facts) -> Nic:
    """The card with its links. Without a PCI function it is software, of which the rate is made up."""
    by_id = {one.bus_id: one for one in facts.pci}
    layer = port.link_layer if port.link_layer in ("infiniband", "ethernet") else None
    if function is None:
        return Nic(ObservedNic(name=device.name, link_layer=layer), device, port)
    path = (*(by_id[bus_id] for bus_id in function.path if bus_id in by_id), function)
    seen = ObservedNic(
        name=device.name,
        bus_id=function.bus_id,
        product=" ".join(filter(None, (function.vendor_id, function.device_id, device.board, layer))),
        numa_node=function.numa_node,
        rate_gbit_s=port.rate_gbit_s,
        link_layer=layer,
        path=tuple(_port(one.link, one.bus_id) for one in path),
    )
    uuids = {gpu.pci_bus_id.lower(): gpu.uuid for gpu in facts.gpus}
    near = (one for one in facts.pci if one.bus_id in uuids and below_one_switch(function, one))
    gpu = next(near, None)
    if gpu is None:
        return Nic(seen, device, port)
    slot = by_id.get(gpu.path[-1])
    return Nic(seen, device, port, _of_gpu(gpu, slot), uuids[gpu.bus_id])


def _port(link: PcieLink, bus_id: str) -> Port:
    return Port(
        bus_id=bus_id, gen=link.generation, width=link.width, max_gen=link.max_generation, max_width=link.max_width
    )


def _of_gpu(gpu: PciDevice, slot: PciDevice | None) -> Port:
    """Its link at full speed, which an idle GPU lowers."""
    ends = [gpu.link, slot.link] if slot is not None else [gpu.link]
    best = min((link.max_generation for link in ends if link.max_generation), default=None)
    return Port(bus_id=gpu.bus_id, gen=best, width=gpu.link.width, max_gen=best, max_width=gpu.link.width)


def _traffic(root: Path, device: str, port: int) -> tuple[int, int] | None:
    folder = root / f"sys/class/infiniband/{device}/ports/{port}/counters"
    try:
        sent, received = (int((folder / f"port_{way}_data").read_text()) * WORD for way in ("xmit", "rcv"))
    except (OSError, ValueError):
        return None
    return sent, received


def _busy(root: Path, nics: Sequence[Nic]) -> dict[str, float]:
    def read() -> dict[str, int]:
        every = {nic.seen.name: _traffic(root, nic.seen.name, nic.port.number) for nic in nics}
        return {name: sum(traffic) for name, traffic in every.items() if traffic is not None}

    before, since = read(), time.monotonic()
    if not before:
        return {}
    time.sleep(WATCHED_S)
    after, seconds = read(), time.monotonic() - since
    rates = {name: (after[name] - before[name]) / seconds for name in before if name in after}
    return {name: rate / 1e9 for name, rate in rates.items() if rate > BUSY_BYTES_S}


def _risen(readings: Sequence[PortCounters]) -> dict[str, dict[str, int]]:
    return {
        first.port: rose
        for first, last in zip(readings[::2], readings[1::2], strict=True)
        if (rose := {n: v - first.values[n] for n, v in last.values.items() if v > first.values.get(n, v)})
    }


def _engine() -> tuple[str, str]:
    program = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"

    def text(option: str) -> str:
        done = completed((sys.executable, "-c", program, "ib_write_bw", option), 10.0)
        return (done.stdout + done.stderr).decode(errors="replace")

    version = VERSION.search(text("--version"))
    return f"perftest {version[1]}" if version else "perftest", text("--help")


def _memories(
    facts: Facts, nics: Sequence[Nic], options: NetworkOptions, helps: str
) -> tuple[tuple[str, ...], list[Finding]]:
    """Return the ways to GPU memory to be measured, and why there are none."""
    if options.gpu_memory == "no" or not nics or (options.gpu_memory == "auto" and not any(nic.gpu for nic in nics)):
        return (), []
    ways = _ways(facts)
    subject = Subject(check="nic-gpu-memory")
    if not ways or not any(nic.gpu for nic in nics):
        return (), [subject.skips("nic.no-gpu-near", f"{len(ways)} ways to GPU memory")]
    if "--use_cuda" not in helps:
        return (), [subject.skips("nic.perftest-without-gpu", "no --use_cuda")]
    return ways, []


def _ways(facts: Facts) -> tuple[str, ...]:
    if not may_have_gpudirect(facts):
        return ()
    peer = re.search(r"^nvidia_peermem ", facts.texts[MODULES] or "", re.MULTILINE)
    return ("peermem",) * bool(peer) + ("dma-buf",) * (facts.driver.loaded_flavour == "open")


def _healthy(facts: Facts) -> Callable[[Transfer, Sequence[Transfer]], float]:
    """Return what a test reaches on a healthy simulated machine: the limit of its links, 0 for a port without one."""

    def limit(test: Transfer, tests: Sequence[Transfer]) -> float:
        both = list(dict.fromkeys([test.client, test.server]))
        nics = [*both, *(one.client for one in tests if one.client not in both)]
        one = NicResult(nics=(0, len(both) - 1), value=0.0, gpu=test.gpu, together=test.together)
        found = expected([replace(nic, mtu=4096) for nic in nics], one, virtual=facts.system.virtual is not None)
        return found.gb_s if found is not None else 0.0

    return limit
