"""Machines that answer through an NVML library and a PCI tree that we did not write: what is true of each, and no more.

data/foreign_nvml/SOURCE.md says where they come from. Expected is what their configuration says of them.
"""

import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gpucheck.host.recording import read_recording
from gpucheck.model import Finding, NvmlReading, Report, Verdict
from gpucheck.run import verification as run

DATA = Path(__file__).parent / "data" / "foreign_nvml"
MOCK = os.environ.get("GPUCHECK_MOCK_NVML", "")
QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
LOUD = (Verdict.WARN, Verdict.FAIL)
WARN, FAIL = LOUD


Loud = dict[tuple[str, str | None], int]


class Truth(NamedTuple):
    """gpus, name: how many GPUs of which name. cls: of every pair. loud: who warns or fails, by cause.

    verdicts: of these checks.
    """

    gpus: int
    name: str
    cls: str
    loud: Loud
    verdicts: dict[str, Verdict]


PASS, SKIP, UNKNOWN = Verdict.PASS, Verdict.SKIP, Verdict.UNKNOWN
FINE = {"memory-errors": PASS, "pcie-link": PASS, "persistence": PASS, "processes": PASS, "throttle": PASS}
# NVML reports PIX where the PCI tree has no switch.
PIX: Loud = {("topology", None): 1}
NO_P2P = ("p2p-status", "p2p-unsupported-pair")
MACHINES = {
    "a100": Truth(8, "NVIDIA A100-SXM4-40GB", "NV12", PIX, FINE | {"nvlink": PASS, "p2p-status": PASS}),
    "h100": Truth(8, "NVIDIA H100 80GB HBM3", "NV18", PIX, FINE | {"nvlink": PASS, "fabric": PASS}),
    "h100-no-sysfs": Truth(8, "NVIDIA H100 80GB HBM3", "NV18", {}, FINE | {"nvlink": PASS, "inventory": UNKNOWN}),
    "b200": Truth(8, "NVIDIA B200", "PIX", PIX | {("nvlink", "nvlink-down"): 8, NO_P2P: 1}, FINE),
    "gb200": Truth(8, "NVIDIA GB200", "NV18", PIX, FINE | {"nvlink": PASS, "fabric": PASS, "p2p-status": PASS}),
    "gb300": Truth(8, "NVIDIA GB300 NVL", "NV18", PIX, FINE | {"nvlink": PASS, "fabric": PASS, "p2p-status": PASS}),
    "l40s": Truth(8, "NVIDIA L40S", "PIX", PIX | {NO_P2P: 1}, FINE | {"nvlink": SKIP, "nvlink-errors": SKIP}),
    "t4": Truth(4, "NVIDIA T4", "PIX", PIX | {NO_P2P: 1}, FINE | {"nvlink": SKIP, "nvlink-errors": SKIP}),
}


def replay(name: str) -> tuple[NvmlReading, Report]:
    host = read_recording(DATA / f"{name}.json.gz")
    reading = host.nvml
    assert isinstance(reading, NvmlReading)
    return reading, run.verify(host, QUICK)


def of(report: Report, check: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == check]


def test_every_recording_has_its_truth():
    assert {path.name.partition(".")[0] for path in DATA.glob("*.json.gz")} == set(MACHINES)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_reported_as_it_is(name):
    """A place on the bus that NVML writes as all ones is none: no switch, and no GPU, sits there."""
    (reading, report), truth = replay(name), MACHINES[name]

    assert Counter(gpu.name for gpu in reading.gpus) == {truth.name: truth.gpus}
    assert len({gpu.pci_bus_id for gpu in reading.gpus}) == truth.gpus
    assert Counter((f.check, f.cause) for f in report.findings if f.verdict in LOUD) == truth.loud
    assert not [f for f in report.findings if "defect of gpucheck" in f.why]
    assert {check: {f.verdict for f in of(report, check)} for check in truth.verdicts} == {
        check: {verdict} for check, verdict in truth.verdicts.items()
    }
    assert report.topology is not None
    classes = {pair.cls for pair in report.topology.pairs}
    assert classes == {truth.cls} if truth.cls.startswith("NV") else classes <= {"PIX", "SYS", "NODE", "PHB"}
    assert not [link for gpu in reading.gpus for link in gpu.nvlinks if (link.remote_bus_id or "").startswith("ffff")]


def test_switches_that_only_nvml_shows_are_not_denied():
    """On the A100 twelve links of each GPU end at a switch, and the PCI tree has none: its fabric is not known."""
    _, report = replay("a100")

    assert {f.verdict for f in of(report, "fabric")} & {Verdict.SKIP, Verdict.FAIL} == set()


def test_without_a_pci_tree_nothing_agrees_with_it():
    """Neither topology nor the driver may say that NVML and the kernel agree where the kernel could not be asked."""
    _, report = replay("h100-no-sysfs")

    said = [f"{f.seen} {f.wanted} {f.why}" for check in ("topology", "driver") for f in of(report, check)]
    assert not [words for words in said if "NVML and sysfs agree" in words]
    assert not [f for f in report.findings if f.verdict is Verdict.PASS and f.check in ("inventory", "iommu", "acs")]


def test_a_model_without_nvlink_is_known():
    """Both are in the table of GPUs: their ports that are off are none."""
    for name in ("l40s", "t4"):
        assert "not in the GPU table" not in " ".join(f.why for f in of(replay(name)[1], "nvlink"))


# What nvml-mock-ctl did to GPU 1, and what is to be said of it and of nothing else.
FABRIC_FAULTS = {
    "degraded_bandwidth": (WARN, "fabric-degraded"),
    "route_recovery": (WARN, "fabric-degraded"),
    "access_timeout_recovery": (WARN, "fabric-degraded"),
    "route_unhealthy": (FAIL, "fabric-degraded"),
    "insufficient_nvlinks": (FAIL, "nvlink-down"),
    **dict.fromkeys(
        (
            *("no_partition", "incompatible_gpu_fw", "invalid_location"),
            *("incorrect_sysguid", "incorrect_chassis_sn", "gpu_state_invalid"),
        ),
        (FAIL, "fabric-degraded"),
    ),
}
FAULTS = {
    "fail --mode lost": ("inventory", FAIL, "gpu-lost"),
    "fail --mode fallen_off_bus": ("inventory", FAIL, "gpu-lost"),
    # The mock lets a row fail as well, which is the graver of the two.
    "fail --mode ecc_uncorrectable": ("memory-errors", FAIL, "row-remap"),
    "temp 98": ("throttle", WARN, "throttled"),
    "throttle thermal": ("throttle", FAIL, "throttled"),
    "throttle power_brake": ("throttle", FAIL, "throttled"),
    "throttle hw_slowdown": ("throttle", FAIL, "throttled"),
    "throttle sw_thermal": ("throttle", WARN, "throttled"),
    "nvlink-error 250": ("nvlink-errors", WARN, "nvlink-errors"),
    "sram-ecc --type parity 3": ("memory-errors", FAIL, "ecc-uncorrected"),
    "sram-ecc --type secded --source sm --threshold-exceeded 4": ("memory-errors", FAIL, "sram-threshold"),
    "set remapped_rows.availability_histogram.none=2": ("memory-errors", WARN, "row-remap"),
    "set remapped_rows.pending=true": ("memory-errors", WARN, "row-remap"),
    "set remapped_rows.failure_occurred=true": ("memory-errors", FAIL, "row-remap"),
    **{f"fabric-health {name}": ("fabric", *said) for name, said in FABRIC_FAULTS.items()},
}


@cache
def injected() -> dict[str, object]:
    return dict(json.loads(lzma.decompress((DATA / "faults-h100.json.xz").read_bytes())))


def after(command: str, **parts: object) -> Report:
    recording = read_recording(DATA / "h100-no-sysfs.json.gz")
    nvml = msgspec.convert(injected()[command], NvmlReading)
    return run.verify(msgspec.structs.replace(recording, nvml=nvml, **parts), QUICK)


def loud_after(command: str) -> set[tuple[str, Verdict, str | None, str]]:
    """Of a recording with device files, which are of no use there."""
    report = after(command, device_files=())
    return {(f.check, f.verdict, f.cause, f.subject) for f in report.findings if f.verdict in LOUD}


def test_the_machine_without_a_fault_is_healthy():
    assert loud_after("healthy") == set()
    assert injected().keys() == {"healthy", *FAULTS}


@pytest.mark.parametrize("command", FAULTS)
def test_every_fault_of_the_mock_is_named_and_no_other(command):
    assert loud_after(command) == {(*FAULTS[command], "gpu:0000:1b:00.0")}


@pytest.mark.more
@pytest.mark.skipif(not MOCK, reason="GPUCHECK_MOCK_NVML: a folder as in tests/data/foreign_nvml/SOURCE.md")
@pytest.mark.parametrize("command", FAULTS)
def test_the_mock_itself_is_judged_as_its_recordings(command, tmp_path):
    """The mock has no device files and no kernel module: those findings are of the host."""
    mock, overrides = Path(MOCK), tmp_path / "overrides.yaml"
    what, *words = command.split()
    control = [
        mock / "nvml-mock-ctl",
        "--file",
        overrides,
        "--config",
        mock / "config.yaml",
        what,
        "--gpu",
        "1",
        *words,
    ]
    subprocess.run(control, check=True, capture_output=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(mock),
        "MOCK_NVML_CONFIG": str(mock / "config.yaml"),
        "MOCK_NVML_OVERRIDES": str(overrides),
    }
    verify = [sys.executable, "-m", "gpucheck", "verify", "--level", "quick", "--format", "json"]
    done = subprocess.run(verify, env=environment, stdout=subprocess.PIPE, check=False)
    found = [(f["check"], Verdict(f["verdict"]), f["cause"], f["subject"]) for f in json.loads(done.stdout)["findings"]]

    assert [one for one in found if one[1] in LOUD and one[3] != "host"] == [(*FAULTS[command], "gpu:0000:1b:00.0")]


def test_a_recording_without_device_files_does_not_say_whose_gpu_is_missing():
    """As recorded before they were read: a GPU that this session may not use is not lost."""
    (finding,) = of(after("fail --mode lost"), "inventory")

    assert (finding.verdict, finding.code) == (UNKNOWN, "run.reading-not-recorded")
    assert finding.evidence == ("the recording does not contain device_files",)
