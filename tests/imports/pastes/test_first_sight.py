"""What beginners paste: a line or two in the form of a real tool, and the first answer to it."""

import pytest

from gpucheck import imports
from gpucheck.run.pastes import diagnosis

LIMITED = (
    "[    4.512003] pci 0000:41:00.0: [10de:2684] type 00 class 0x030000\n"
    "[    4.512200] pci 0000:41:00.0: {}.008 Gb/s available PCIe bandwidth, limited by {} link at 0000:40:01.1 "
    "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
)
AER = (
    "[ 8123.112233] pcieport 0000:00:01.1: AER: Multiple Corrected error received: 0000:01:00.0\n"
    "[ 8123.112240] nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
)
BURN = "100.0%  proc'd: 128 (10234 Gflop/s) - 128 (10190 Gflop/s)   errors: 0  - 53 (WARNING!)  temps: 71 C - 84 C\n"
USAGE = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
CASES = {
    "narrow-at-boot": (LIMITED.format(63, "16.0 GT/s PCIe x4"), ("pcie-link", "warn", "pcie-width-reduced")),
    "idle-at-boot": (LIMITED.format(31, "2.5 GT/s PCIe x16"), ("kernel-log", "pass", None)),
    "aer": (AER, ("kernel-log", "warn", "pcie-errors")),
    "works-without-p2p": ("If I set NCCL_P2P_DISABLE=1 everything is fine but slower.\n", ("remark", "warn", None)),
    "vllm": (
        "WARNING custom_all_reduce.py:71] Custom allreduce is disabled because your platform lacks GPU P2P capability"
        " or P2P test failed.\n",
        ("cuda-error", "unknown", None),
    ),
    "gloo": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.5]:432\n",
        ("cuda-error", "unknown", None),
    ),
    "gpu-burn-rate": (BURN, ("cuda-error", "fail", "silent-corruption")),
    "gpu-burn-died": (
        BURN.replace("53 (WARNING!)", "-1  (DIED!)") + "Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n",
        ("cuda-error", "unknown", None),
    ),
    "gpu-burn-both": (
        BURN.replace("0  -", "-1  (DIED!)-") + "Tested 2 GPUs:\n\tGPU 0: FAULTY\n\tGPU 1: FAULTY\n",
        ("cuda-error", "fail", "silent-corruption"),
    ),
    "gpu-burn-end": ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n", ("cuda-error", "fail", "silent-corruption")),
    "usage-and-why": (
        USAGE + "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n",
        ("nccl-log", "unknown", None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_answer_is_what_decides(name):
    paste, expected = CASES[name]

    (first, *others) = diagnosis([imports.read_all(paste.encode(), "paste.txt")], sources=("paste.txt",)).findings

    assert (first.check, first.verdict.value, first.cause) == expected
    assert {one.verdict.value for one in others} <= {"pass", *(("fail", "unknown") if name == "gpu-burn-both" else ())}


def test_an_error_that_port_and_device_report_is_one():
    (found,) = diagnosis([imports.read_all(AER.encode(), "paste.txt")], sources=("paste.txt",)).findings

    assert "times" not in str(found.seen)
