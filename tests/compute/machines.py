"""Simulated machines that compute, without their directories, and devices made by hand."""

from typing import NamedTuple

from msgspec.structs import replace

from gpucheck import simulator
from gpucheck.checks import checks_of
from gpucheck.checks.compute.rates import doubtful
from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.compute.measure import OF_MEMORY, READINGS, SHUTDOWN, Progress, rounds
from gpucheck.compute.running.run import ComputeRun
from gpucheck.model import Finding, Verdict
from gpucheck.model.compute import TORCH, Computed, ComputeDevice, MatrixRate, MemoryRates, Repeats, Sample
from gpucheck.model.device import Device
from gpucheck.model.facts import Facts
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import build
from gpucheck.simulator.writer import gpus_that_compute

LOUD = (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN)
IDS = [f"0000:{number:02x}:00.0" for number in range(1, 9)]
NAME = "NVIDIA H100 80GB HBM3"


def evaluate(devices, engine: str = TORCH, *, shared: bool = False) -> tuple[Finding, ...]:
    """The findings of all rules about what these devices computed."""
    host = Facts(computed=Computed(engine=engine, devices=tuple(devices), shared=shared))
    return tuple(finding for check in checks_of("compute") for finding in check.evaluate(host))


def simulated(profile: str, *faults: str):
    """The GPUs of a profile with faults, as compute.json holds them."""
    known = simulator.load(profile)
    machine = build(known, known.driver.state())
    machine.faults = faults
    apply(machine)
    return gpus_that_compute(machine)


def computed(profile: str, *faults: str, seed: int = 0) -> tuple[ComputeRun, tuple[Finding, ...]]:
    """A whole run on a simulated machine; limits as NVML would report them."""
    gpus = simulated(profile, *faults)
    return computed_on(gpus, seed)


def run(bench, devices, *, small: bool = False, doubtful=lambda _: ()) -> ComputeRun:
    ran = ComputeRun(bench, devices, doubtful, small=small)
    ran.standard()
    return ran


def computed_on(gpus, seed: int = 0) -> tuple[ComputeRun, tuple[Finding, ...]]:
    devices = [Device(index=number, name=gpu.name, bus_id=gpu.bus_id) for number, gpu in enumerate(gpus)]
    ran = run(SimulatedBench(gpus, seed), devices, doubtful=doubtful)
    limited = tuple(
        replace(one, power_limit_w=gpu.power_limit_w, power_default_w=gpu.power_default_w)
        for one, gpu in zip(ran.devices, gpus, strict=True)
    )
    return ran, evaluate(limited)


class Ran(NamedTuple):
    """The end of a burn-in: the run, how far it came and why it ended, its devices and findings."""

    run: ComputeRun
    at: Progress
    ended: str
    devices: tuple[ComputeDevice, ...]
    findings: tuple[Finding, ...]


def burnt(gpus, seconds: float, *, limit: float | None = None, memory: float | None = None) -> Ran:
    """Run to the end."""
    devices = tuple(Device(index=number, name=gpu.name, bus_id=gpu.bus_id) for number, gpu in enumerate(gpus))
    own = {code: degrees for code, degrees in ((SHUTDOWN, limit), (OF_MEMORY, memory)) if degrees is not None}
    run = ComputeRun(SimulatedBench(gpus, tick_s=3.0), devices, doubtful, most=READINGS)
    *_, at = rounds(run, seconds, dict.fromkeys(range(len(gpus)), own))
    return Ran(run, at, at.ended(run, seconds), run.devices, evaluate(run.devices))


def loud(findings) -> list[tuple[str, str, str | None, str]]:
    return [(f.check, f.subject, f.cause, str(f.seen)) for f in findings if f.verdict in LOUD]


def device(number: int = 0, *, mhz=1800.0, tflops=700.0, gb_s=3000.0, mad=0.2, digest="aa", differing=0, **more):
    """A healthy H100."""
    ceiling = 4096 * 132 * mhz / 1e6
    made = ComputeDevice(
        index=number,
        name=NAME,
        bus_id=IDS[number],
        capability="9.0",
        multiprocessors=132,
        memory_bus_bits=5120,
        memory_clock_mhz=2619,
        power_limit_w=700,
        power_default_w=700,
        gemm={
            "bf16": MatrixRate(
                tflops=tflops,
                of_ceiling=tflops / ceiling,
                ceiling_tflops=ceiling,
                clock_mhz=mhz,
                mad_percent=mad,
                samples=30,
            )
        },
        memory=MemoryRates(
            read_gb_s=gb_s,
            write_gb_s=gb_s,
            copy_gb_s=gb_s,
            ceiling_gb_s=3352,
            mad_percent=dict.fromkeys(("read", "write", "copy"), mad),
            samples=dict.fromkeys(("read", "write", "copy"), 30),
        ),
        digests={"matrix-bf16": digest},
        repeats={"matrix-bf16": Repeats(repeats=20, differing=differing, values=10**11)},
        traces=tuple(
            Sample(at=at, sm_clock_mhz=mhz, power_w=650, temperature_c=60, reasons=("sw-power-cap",))
            for at in (1.0, 2.0, 3.0)
        ),
    )
    return made if not more else type(made)(**{f: getattr(made, f) for f in made.__struct_fields__} | more)
