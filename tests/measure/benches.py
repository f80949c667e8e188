"""Machines to measure without a child process: hand-made readings, an engine of formulas, and one that asks it here."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gpucheck.checks import checks_of
from gpucheck.diagnose import doubtful
from gpucheck.host.nvml.gauge import LinkReading
from gpucheck.measure.planning.plan import (
    CopyPaths,
    Depth,
    MeasurementRequest,
    buffer_bytes,
    paths,
    plan,
    ports_to_host,
)
from gpucheck.measure.planning.selection import device
from gpucheck.measure.reporting.observed import observations
from gpucheck.measure.reporting.report import copied
from gpucheck.measure.reporting.surroundings import Scene
from gpucheck.measure.running.child import answer, open_engine
from gpucheck.measure.running.runner import Results, RunStep, run
from gpucheck.measure.values import Answer, CopyEngine, CopyStep, Opened, Setup
from gpucheck.model import Finding, Gpu, NvmlReading, PciDevice, PcieLink
from gpucheck.model.copies import Failure
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.facts import Facts
from gpucheck.processes.environment import python_module
from gpucheck.simulator.cuda.copies import MeasurementFault, Rates, describe
from gpucheck.topology import build
from tests.fakes import SYSTEM, facts
from tests.machines import h100, on_bus, p100, reading
from tests.measure.formulas import FormulaEngine


class Here:
    """Steps run with the engine in this process. asked: every step, in order."""

    def __init__(self, engine: CopyEngine, setup: Setup) -> None:
        self.engine = engine
        self.opened = open_engine(engine, setup)
        self.asked: list[CopyStep] = []

    def run_step(self, step: CopyStep) -> Answer | Failure:
        self.asked.append(step)
        return answer(self.engine, step)


def gaps(results: Results, *, gpus: bool, loaded: bool) -> tuple[Finding, ...]:
    """What rules find in a run beside its rates; arguments as in report.copied."""
    facts = Facts(copied=copied(results, gpus=gpus, loaded=loaded))
    return tuple(finding for check in checks_of("p2p") for finding in check.evaluate(facts))


class Bench:
    """A simulated machine that can be measured again and again."""

    def __init__(self, gpus: Sequence[Gpu], ancestor: str = "PIX", pci: tuple[PciDevice, ...] | None = None) -> None:
        self.gpus = tuple(gpus)
        self.reading: NvmlReading = reading(*self.gpus, ancestor=ancestor)
        if pci is not None:
            self.reading = replace(self.reading, ancestors=())  # the PCI tree alone says how they are connected
        self.pci = on_bus(*self.gpus) if pci is None else pci
        self.topology = topology = build(self.reading, self.pci, simulated=True)
        self.machine = CopyPaths(
            devices=tuple(device(gpu) for gpu in self.gpus),
            between=paths(self.gpus, self.pci, topology),
            to_host=ports_to_host(self.gpus, self.pci),
        )

    def rates(self, *faults: MeasurementFault) -> Rates:
        return describe(self.reading, self.pci, self.gpus, faults)

    def engine(self, *faults: MeasurementFault) -> FormulaEngine:
        return FormulaEngine(self.rates(*faults))

    def child(self, *faults: MeasurementFault) -> tuple[str, ...]:
        """The command of a child process with this engine."""
        return (*python_module("tests.measure.formulas"), msgspec.json.encode(self.rates(*faults)).decode())

    def setup(self) -> Setup:
        return Setup(
            engine="driver",
            devices=self.machine.devices,
            buffer_bytes=buffer_bytes(self.machine),
            parent_pid=0,
        )

    def request(self, depth: Depth = "default") -> MeasurementRequest:
        return MeasurementRequest(
            depth=depth,
            methods=("ce-write", "ce-read", "sm-write", "staged"),
            buffer_bytes=buffer_bytes(self.machine),
        )

    def measure(
        self, *faults: MeasurementFault, depth: Depth = "default", only: str | None = None
    ) -> tuple[Results, Here]:
        here = Here(self.engine(*faults), self.setup())
        assert isinstance(here.opened, Opened)
        return self.run(here.run_step, depth, only, opened=here.opened), here

    def run(
        self, run_step: RunStep, depth: Depth = "default", only: str | None = None, opened: Opened | None = None
    ) -> Results:
        """The results of the plan, or of its steps with one purpose."""
        results, request = Results(self.machine.devices, opened), self.request(depth)
        run(
            [step for step in plan(self.machine, request) if only in (None, step.purpose)],
            run_step,
            results,
            machine=self.machine,
            request=request,
            low=lambda r: doubtful(self.observed(r)),
        )
        return results

    def scene(self, files: dict[str, str] | None = None, virtual: str | None = None, pci=None, **more) -> Scene:
        """The machine as it is read before the copies. more: what else is known of it."""
        system = replace(SYSTEM, virtual=virtual)
        known = facts(pci=self.pci if pci is None else pci, system=system, files=files)
        return Scene(**{"gpus": self.gpus, "before": self.reading, "facts": known, "topology": self.topology, **more})

    def observed(self, results: Results, **more) -> Observations:
        return observations(results, self.machine, self.scene(**more))

    def links(self, reading: NvmlReading | None = None) -> tuple[LinkReading, ...]:
        """What a reading, by default the bench's own, says of the links while copying."""
        return tuple(
            LinkReading(
                bus_id=gpu.pci_bus_id,
                generation=gpu.pcie.generation,
                width=gpu.pcie.width,
                reasons=gpu.health.clocks_event_reasons,
            )
            for gpu in (reading or self.reading).gpus
        )

    def seen(self, *faults: MeasurementFault, depth: Depth = "default", **more) -> Observations:
        """What a run of its own observes, NVML read as the bench has it while copies ran."""
        results, _ = self.measure(*faults, depth=depth)
        return self.observed(results, **{"during": self.links(), "after": self.reading, **more})

    def gaps(self, results: Results, *, loaded: bool = True) -> tuple[Finding, ...]:
        return gaps(results, gpus=True, loaded=loaded)


TWO_PCIE = Bench([p100(0), p100(1)])
EIGHT_NVSWITCH = Bench([h100(index) for index in range(8)], ancestor="SYS")


def a100(index: int) -> Gpu:
    """A GPU of an HGX A100, whose NVSwitch loses when a GPU sends and receives."""
    made = h100(index)
    model = {"name": "NVIDIA A100-SXM4-80GB", "device_id": "20b2", "compute_capability": "8.0", "fabric": None}
    return replace(made, **model, nvlinks=tuple(replace(link, version=5) for link in made.nvlinks[:12]))


EIGHT_A100 = Bench([a100(index) for index in range(8)], ancestor="SYS")


def gen4(index: int) -> Gpu:
    """A card in a slot of its own, four to a socket."""
    link = PcieLink(generation=4, width=16, max_generation=4, max_width=16, device_max_generation=4)
    return replace(p100(index), pci_bus_id=f"0000:{index + 1}1:00.0", pcie=link)


def eight_pcie() -> Bench:
    gpus = [gen4(index) for index in range(8)]
    pci = tuple(
        replace(device, numa_node=place // 4, root=f"pci0000:{place}0", path=(f"0000:{place}0:01.0",))
        for place, device in enumerate(on_bus(*gpus))
    )
    return Bench(gpus, pci=pci)


EIGHT_PCIE = eight_pcie()


def fault(name: str, a: int = 0, b: int = 1, **values) -> MeasurementFault:
    return MeasurementFault(fault=name, a=a, b=b, **values)


def by_check(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    answer_: dict[str, list[Finding]] = {}
    for finding in findings:
        answer_.setdefault(finding.check, []).append(finding)
    return answer_
