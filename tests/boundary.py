"""NVML's answers spoilt one at a time on a healthy machine, and the rules of what a report may then say."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import pynvml

from gpucheck import simulator
from gpucheck.host import LiveSource, Place
from gpucheck.host.nvml.reading import NVLINK_5_COUNTERS, read_nvml
from gpucheck.model import Finding, NvmlReading, Verdict
from gpucheck.run import verification as run
from gpucheck.simulator.answers import answers
from gpucheck.simulator.faults import apply
from gpucheck.simulator.faults.nvml import CALLS
from gpucheck.simulator.nvml.library import all_exports, base_name, called
from gpucheck.topology import build as build_topology

QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
EXPORTED = {one.name for one in all_exports()}


def quick_findings(host: LiveSource) -> tuple[Finding, ...]:
    """The findings of all quick steps; what a step raises is raised."""
    return tuple(one for step in QUICK for one in step.run(host).findings)


NOT_SUPPORTED, NOT_IN_LIBRARY, LOST, NEEDS_RESET, DEPRECATED = 3, 13, 15, 16, 26
CODES = (1, 2, NOT_SUPPORTED, 4, 6, 9, NOT_IN_LIBRARY, LOST, NEEDS_RESET, 17, 18, 19, DEPRECATED, 999)
KINDS = ("latin1", "empty", "garbage")
# A GPU in use, for the questions about its users.
BUSY = {"rtx3090-x2-nvlink": ("busy-gpu:gpu=0",)}
LOUD = (Verdict.WARN, Verdict.FAIL)

# Without them there is no reading at all, or no GPU in it.
START = {"nvmlInit", "nvmlDeviceGetCount"}
IDENTITY = {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo"}
# Without them nothing can be said of the machine: which driver, which links lead where.
MUST = {"nvmlSystemGetDriverVersion", "nvmlDeviceGetNvLinkState"}
# The calls and fields that a check's PASS rests on: where one of them fails, it has not looked.
RESTS_ON: dict[str, set[str]] = {
    "bar1": {"nvmlDeviceGetBAR1MemoryInfo"},
    "c2c": {"NVML_FI_DEV_C2C_LINK_COUNT", "NVML_FI_DEV_C2C_LINK_GET_STATUS"},
    "clock-limit": {"nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock"},
    "compute-mode": {"nvmlDeviceGetComputeMode"},
    "driver": {"nvmlSystemGetDriverVersion"},
    "fabric": {"nvmlDeviceGetGpuFabricInfoV"},
    "memory-errors": {
        *("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
        *("nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetRetiredPages"),
    },
    "mig": {"nvmlDeviceGetMigMode"},
    "nvlink": {"nvmlDeviceGetNvLinkState"},
    "nvlink-errors": {
        *("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY"),
        *("NVML_FI_DEV_NVLINK_ERROR_DL_CRC", "nvmlDeviceGetNvLinkErrorCounter"),
        *(field for field, name in NVLINK_5_COUNTERS.items() if not name.endswith("_ber")),
    },
    "p2p-status": {"nvmlDeviceGetP2PStatus"},
    "pcie-link": {"nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth"},
    "persistence": {"nvmlDeviceGetPersistenceMode"},
    "power-limit": {"nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit"},
    "processes": {"nvmlDeviceGetComputeRunningProcesses"},
    "throttle": {"nvmlDeviceGetCurrentClocksEventReasons"},
    "topology": {"nvmlDeviceGetTopologyCommonAncestor"},
}
# Calls and fields that another one can stand for.
COUNTER = "nvmlDeviceGetNvLinkErrorCounter"
INSTEAD: dict[str, tuple[str, ...]] = {
    "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY": (COUNTER,),
    "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY": (COUNTER,),
    "NVML_FI_DEV_NVLINK_ERROR_DL_CRC": (COUNTER,),
    COUNTER: tuple(f"NVML_FI_DEV_NVLINK_ERROR_DL_{kind}" for kind in ("REPLAY", "RECOVERY", "CRC")),
    "nvmlDeviceGetCurrentClocksEventReasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    "nvmlDeviceGetGpuFabricInfoV": ("nvmlDeviceGetGpuFabricInfo",),
}
# They are about two GPUs: which of them is lost, the code does not tell.
OF_PAIRS = {"nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"}
# What else may cost a check its answer: it reads the value beside the one that it judges.
USES: dict[str, set[str]] = {
    "bar1": {
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
    },
    "fabric": {
        *("nvmlSystemGetDriverVersion", "nvmlDeviceGetP2PStatus"),
        *("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"),
    },
    "numa": {"nvmlDeviceGetCpuAffinity", "nvmlDeviceGetMemoryAffinity"},
    "nvlink-errors": {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetCudaComputeCapability"},
    "p2p-status": {
        *("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode", "nvmlDeviceGetNvLinkState"),
        *("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"),
    },
    "pcie-errors": {"nvmlDeviceGetPcieReplayCounter"},
    "processes": {"nvmlDeviceGetGraphicsRunningProcesses", "nvmlSystemGetProcessName"},
    "throttle": {"nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureThreshold"},
    "topology": {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"},
}


class Case(NamedTuple):
    """One call spoilt. how: a return code, or a kind of text. gpu: only of this one.

    whole: what could be asked instead is spoilt too, so that the value cannot be had.
    """

    machine: str
    call: str
    how: int | str
    gpu: int | None = None
    whole: bool = True

    @property
    def denies_links(self) -> bool:
        """The driver says itself that there is no such link: it may be believed, though not held to be certain."""
        return self.call == "nvmlDeviceGetNvLinkState" and self.how in (2, NOT_SUPPORTED)

    @property
    def faults(self) -> tuple[str, ...]:
        which = "" if self.gpu is None else f",gpu={self.gpu}"
        if isinstance(self.how, str):
            return (f"nvml-text:call={self.call},kind={self.how}{which}",)
        calls = (self.call, *(INSTEAD.get(self.call, ()) if self.whole else ()))
        return tuple(f"nvml-refuse:call={call},code={self.how}{which}" for call in calls)

    def __str__(self) -> str:
        return f"--simulate {self.machine} " + " ".join(
            f"--fault {fault}" for fault in (*BUSY.get(self.machine, ()), *self.faults)
        )


class BrokenError(Exception):
    """A check that raised."""

    def __init__(self, check: str, error: Exception) -> None:
        self.check = check
        super().__init__(f"{type(error).__name__}: {error}")


@contextmanager
def broken_by(check: str) -> Iterator[None]:
    """An exception in here becomes a BrokenError of this check."""
    try:
        yield
    except Exception as error:
        raise BrokenError(check, error) from error


def of_gpu(call: str) -> bool:
    return call.startswith("NVML_FI") or any(one.of_gpu for one in called(call))


class Machine:
    """A healthy simulated machine under this process, whose NVML is asked again for every case."""

    def __init__(self, name: str, folder: Path, library: Path) -> None:
        self.name = name
        self.profile = simulator.load(name)
        self.folder = folder
        driver, busy = self.profile.driver.state(), BUSY.get(name, ())
        recipe = simulator.Recipe(profile=self.profile, driver=driver, faults=busy, software=True)
        self.machine = simulator.write_machine(recipe, folder)
        (folder / "lib").symlink_to(library)
        self.host = self._host()
        self.text = answers(self.machine)
        self.bus_ids = [gpu.function.bus_id for gpu in self.machine.gpus]

    def _host(self) -> LiveSource:
        return LiveSource(Place(isolated=False, deadline_s=2.0, machine=self.folder))

    @cached_property
    def healthy(self) -> tuple[Finding, ...]:
        return self.findings()

    @cached_property
    def refuses(self) -> set[str]:
        """What it does not have: the calls and fields that it refuses while it is healthy."""
        with self.spoilt():
            reading = self._host().read("nvml").nvml
        assert isinstance(reading, NvmlReading)
        return {gap.call for gap in reading.gaps}

    @cached_property
    def made(self) -> tuple[str, ...]:
        """Every function and field that a pass over NVML asks for."""
        return tuple(dict.fromkeys(self._pass()))

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """And those that it asks for where the first choice is not there."""
        found = dict.fromkeys(self.made)
        for call in self.made:
            found |= dict.fromkeys(self._pass(f"nvml-refuse:call={call},code={NOT_IN_LIBRARY}"))
        return tuple(found)

    def _pass(self, *faults: str) -> Iterator[str]:
        entered: list[str] = []
        fields: set[int] = set()
        genuine = pynvml.nvmlDeviceGetFieldValues

        def spy(handle, wanted):
            fields.update(one[0] if isinstance(one, tuple) else one for one in wanted)
            return genuine(handle, wanted)

        pynvml.nvmlDeviceGetFieldValues = spy
        try:
            with self.spoilt(*faults), suppress(Exception):
                read_nvml(lambda call, subject: entered.append(call))
        finally:
            pynvml.nvmlDeviceGetFieldValues = genuine
        names = {getattr(pynvml, name): name for name in dir(pynvml) if name.startswith("NVML_FI_DEV_")}
        # The reader's name for the first version of a function, which the library exports without a suffix, or with it.
        calls = (call if call in EXPORTED else call.removesuffix("_v1") for call in entered)
        yield from (call for call in calls if call.startswith("nvml") and call != "nvmlDeviceGetFieldValues")
        yield from (names[field] for field in sorted(fields))

    def write(self, *faults: str) -> None:
        """Spoil machine.txt, and nothing else of the machine, by these faults of the boundary."""
        lines: dict[str, str] = {}
        own = [self.machine.nvml, *(gpu.nvml for gpu in self.machine.gpus)]
        before = [dict(table) for table in own]
        self.machine.faults = faults
        apply(self.machine)
        for index, (table, old) in enumerate(zip(own, before, strict=True), -1):
            prefix = "" if index < 0 else f"gpu.{index}."
            lines |= {f"{prefix}{key}": value for key, value in table.items() if old.get(key) != value}
            table.clear()
            table.update(old)
        new = self.folder / "new"
        new.write_text(self.text + "".join(f"{key} = {value}\n" for key, value in lines.items()), encoding="utf-8")
        new.replace(self.folder / "machine.txt")

    def findings(self, *faults: str) -> tuple[Finding, ...]:
        """What the checks say. Raises what a check or the reading of NVML raises."""
        self.host.facts = msgspec.structs.replace(self.host.facts, nvml=msgspec.UNSET)
        self.host.errors.clear()
        with self.spoilt(*faults), broken_by("reading"):
            reading = self.host.read("nvml").nvml
        found: list[Finding] = []
        for step in QUICK:
            with broken_by(step.name):
                found += step.run(self.host).findings
        with broken_by("topology"):
            if isinstance(reading, NvmlReading):
                build_topology(reading, self.host.read("pci").pci, simulated=True)
        return tuple(found)

    @contextmanager
    def spoilt(self, *faults: str) -> Iterator[None]:
        """NVML is as the faults have it; afterwards it is shut down, for it keeps the machine that it began with."""
        os.environ["GPUCHECK_SIMULATOR"] = str(self.folder)
        self.write(*faults)
        try:
            yield
        finally:
            self.write()
            with suppress(pynvml.NVMLError):
                while True:
                    pynvml.nvmlShutdown()


def all_cases(machine: Machine) -> Iterator[Case]:
    """Every call that gpucheck makes there, with every answer, of all GPUs and of one in the middle."""
    middle = (len(machine.bus_ids) - 1) // 2
    for call in machine.calls:
        places = (None, middle) if of_gpu(call) else (None,)
        kinds = KINDS if base_name(call) in CALLS else ()
        for how in (*CODES, *kinds):
            for gpu in places:
                yield Case(machine.name, call, how, gpu)
                if call in INSTEAD:
                    yield Case(machine.name, call, how, gpu, whole=False)


Broken = Iterator[tuple[str, str]]


def broken_rules(case: Case, machine: Machine, now: tuple[Finding, ...]) -> set[tuple[str, str]]:
    """The rules that a report breaks, each with the check that breaks it."""
    hit = machine.bus_ids if case.gpu is None else [machine.bus_ids[case.gpu]]
    affected = {f"gpu:{bus_id}" for bus_id in hit} | {"host"}
    return {
        *_accused(case, machine, now),
        *_passed(case, machine, now, affected),
        *_overlooked(case, machine, now),
        *(_changed(case, machine, now, affected) if case.call not in START else ()),
    }


def _accused(case: Case, machine: Machine, now: tuple[Finding, ...]) -> Broken:
    before = {(f.check, f.subject, f.verdict, f.cause) for f in machine.healthy}
    for finding in now:
        if finding.cause == "wedged-driver":
            yield finding.check, "wedged-driver without a hang or a signal"
        if finding.verdict in LOUD and (finding.check, finding.subject, finding.verdict, finding.cause) not in before:
            certain = finding.confidence == "certain"
            if not _has_evidence(case, finding, certain=certain):
                yield finding.check, "certain without evidence" if certain else "accuses without evidence"


def _passed(case: Case, machine: Machine, now: tuple[Finding, ...], affected: set[str]) -> Broken:
    """A refusal by which NVML says that there is no such thing may make a check not applicable; no other may."""
    # INVALID_ARGUMENT is what an older driver answers for a field that it does not know.
    absent = (NOT_SUPPORTED, NOT_IN_LIBRARY, DEPRECATED, *((2,) if case.call.startswith("NVML_FI") else ()))
    asked = case.call in machine.made and case.call not in machine.refuses
    counts = case.whole and case.how not in absent and asked
    for check in [check for check, calls in RESTS_ON.items() if counts and case.call in calls]:
        was, own = (
            {f.verdict for f in findings if f.check == check and f.subject in affected}
            for findings in (machine.healthy, now)
        )
        if Verdict.PASS in was and own == {Verdict.PASS}:
            yield check, "PASS although refused"
        if Verdict.PASS in was and own == {Verdict.SKIP} and not case.denies_links:
            yield check, "SKIP as not applicable although refused"


def _overlooked(case: Case, machine: Machine, now: tuple[Finding, ...]) -> Broken:
    was, seen = (
        {f.seen for f in findings if f.check == "topology" and f.verdict is Verdict.PASS}
        for findings in (machine.healthy, now)
    )
    if seen - was and case.call not in IDENTITY and not case.denies_links:
        yield "topology", "PASS with other classes than the machine has"
    lost = any(f.cause == "gpu-lost" and f.verdict is Verdict.FAIL for f in now)
    # Of an older function only where the newer one is not there, and of none that the library lacks.
    made = case.call in machine.made and case.call not in machine.refuses
    if case.how == LOST and made and not lost and of_gpu(case.call) and case.call not in OF_PAIRS:
        yield "inventory", "a lost GPU is reported nowhere"


def _has_evidence(case: Case, finding: Finding, *, certain: bool) -> bool:
    """What a refusal by itself may be held to prove."""
    if case.how in (LOST, NEEDS_RESET):
        return finding.cause in ("gpu-lost", "gpu-reset-required")
    if case.call in START and isinstance(case.how, int):
        # NVML cannot be used, which is a failure; why, only this code says: the module is loaded on each machine here.
        named = {18: "driver-mismatch"}.get(case.how)
        return finding.check == "driver" and (finding.cause == named or not certain)
    if case.call in IDENTITY:
        return finding.check == "inventory" and not certain
    return case.denies_links and finding.check in ("nvlink", "topology") and not certain


def _changed(case: Case, machine: Machine, now: tuple[Finding, ...], affected: set[str]) -> Broken:
    """Checks that judge otherwise although they never ask, or about GPUs that answered."""
    whole = case.call in IDENTITY or case.how in (LOST, NEEDS_RESET)
    # That one compares all answers of equal GPUs.
    for check in {f.check for f in (*machine.healthy, *now)} - {"nvml-answers"}:
        asks = case.call in RESTS_ON.get(check, set()) | USES.get(check, set())
        free = affected if whole or asks else set()
        # Whether a peer needs the window depends on the links of both.
        if asks and (case.gpu is None or (check == "bar1" and "NvLink" in case.call)):
            continue
        was, is_now = (_verdicts(check, findings, free) for findings in (machine.healthy, now))
        if was != is_now:
            yield check, "changes although it never asked" if not asks else "changes for a GPU that answered"


def _verdicts(check: str, findings: tuple[Finding, ...], free: set[str]) -> list[tuple[str, str, str | None]]:
    pairs = "host" in free  # a pair has an end that is affected, or stands for the host
    own = [f for f in findings if f.check == check and f.subject not in free]
    return sorted(
        (f.subject, f.verdict.value, str(f.cause)) for f in own if not (pairs and f.subject.startswith("pair:"))
    )
