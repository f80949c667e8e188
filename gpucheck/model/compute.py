"""The outside contract of ``gpucheck compute``. GB/s is 10**9 bytes per second; TFLOPS 10**12 operations per second."""

from typing import Literal, NamedTuple

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.device import Device

SCHEMA = "gpucheck.compute/1"
TORCH, CUBLAS = "torch", "cublas"  # engines, by what computes
TYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
WAYS = ("read", "write", "copy")
# Counters of errors that were not corrected: they end a burn-in.
FATAL = ("ecc_uncorrected", "pcie_fatal", "pcie_non_fatal")
FailureKind = Literal[
    "missing-package", "not-started", "no-code", "no-process", "no-memory", "no-resources", "stuck", "crashed",
    "cuda-error", "defect",
]  # fmt: skip


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one rate: median, deviation in percent of it, number. clock_mhz: median SM clock meanwhile."""

    median: float
    mad_percent: float
    samples: int
    clock_mhz: float | None = None


class MatrixRate(msgspec.Struct, frozen=True, kw_only=True):
    """Products of matrices of one type, all GPUs at the same time.

    ceiling_tflops: at clock_mhz, None if unknown. of_ceiling: tflops divided by it.
    alone: measured again with no other GPU at work. note: why there is no number.
    """

    tflops: float | None = None
    of_ceiling: float | None = None
    ceiling_tflops: float | None = None
    clock_mhz: float | None = None
    mad_percent: float | None = None
    samples: int = 0
    alone: Rate | None = None
    note: str | None = None


class MemoryRates(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one GPU; copy counts bytes read plus bytes written. alone: by way, as for MatrixRate."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None
    copy_gb_s: float | None = None
    ceiling_gb_s: float | None = None
    mad_percent: dict[str, float] = msgspec.field(default_factory=dict)
    samples: dict[str, int] = msgspec.field(default_factory=dict)
    alone: dict[str, Rate] = msgspec.field(default_factory=dict)


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """One operation repeated. differing: repeats whose digest is not that of the majority. values: computed in all."""

    repeats: int
    differing: int
    values: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a GPU under load. at: seconds of load so far. reasons: as in Health. None: not reported.

    margin_c: Health.temperature_margin_c.
    """

    at: float
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    margin_c: float | None = None
    memory_temperature_c: float | None = None
    reasons: tuple[str, ...] | None = None


class ComputeDevice(Device, frozen=True, kw_only=True):
    """What one device computed. digests: by operation, that of most repeats.

    errors: counters that rose during the run, with the difference. failure: why it has no numbers, or not all.
    failed: the kind of that failure; no-code: the library has none for this GPU. licensed, gsp_firmware: as in Health.
    """

    capability: str | None = None
    multiprocessors: int | None = None
    memory_bus_bits: int | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    licensed: bool | None = None
    gsp_firmware: str | None = None
    gemm: dict[str, MatrixRate] = msgspec.field(default_factory=dict)
    memory: MemoryRates = MemoryRates()
    digests: dict[str, str] = msgspec.field(default_factory=dict)
    repeats: dict[str, Repeats] = msgspec.field(default_factory=dict)
    traces: tuple[Sample, ...] = ()
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    failed: FailureKind | None = None
    failure: str = ""


class Low(NamedTuple):
    """A rate that looks too low. place: of the device among all. what: as the keys of its rates."""

    place: int
    kind: Literal["matrix", "memory"]
    what: str


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """What the devices of one host computed, as rules evaluate it. engine, shared: as in ComputeReport."""

    engine: str
    devices: tuple[ComputeDevice, ...]
    shared: bool = False


class BurnIn(msgspec.Struct, frozen=True, kw_only=True):
    """How far a burn-in came. ended: why it ended; reason: the limit that was reached.

    limits: at which it stops, each with its source. hottest: the highest temperature in degrees Celsius, by GPU index.
    state: the file with this report after each round.
    """

    planned_seconds: float
    seconds: float
    planned_rounds: int
    rounds: int
    ended: Literal["complete", "interrupted", "limit", "no-device"]
    reason: str = ""
    limits: tuple[str, ...] = ()
    hottest: dict[str, float] = msgspec.field(default_factory=dict)
    state: str = ""


class ComputeReport(Answer, frozen=True, kw_only=True):
    """One run. checked_values: computed results that were compared, on the GPU with the fewest; miss: the probability
    that a fault which changes one value in 10**9 was missed there. burn_in: of that level only.
    shared: other processes, or a part of a GPU, may explain a low rate. not_tested: what only torch tests, without it.
    """

    schema: str = SCHEMA
    engine: str
    level: str
    versions: dict[str, str | None]
    load_seconds: float
    gpus: tuple[ComputeDevice, ...]
    checked_values: int = 0
    miss: float = 1.0
    burn_in: BurnIn | None = None
    method: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared: bool = False
    not_tested: tuple[str, ...] = ()
