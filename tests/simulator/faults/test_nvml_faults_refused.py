"""A fault of a GPU that the machine cannot have, or that is written wrongly, is refused in words."""

import pytest

from gpucheck import simulator
from gpucheck.simulator.faults import apply
from gpucheck.simulator.machine import build


@pytest.mark.parametrize(
    ("profile", "fault", "reason"),
    [
        ("p100-pcie-x2", "nvml-hang:call=nvmlDeviceGetNam", "no such function. Did you mean nvmlDeviceGetName?"),
        ("p100-pcie-x2", "nvml-crash:call=x", "NVML has no such function"),
        ("p100-pcie-x2", "nvml-hang:state=dead", "choose one of sleeping, uninterruptible"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetNam,code=4", "Did you mean nvmlDeviceGetName?"),
        ("p100-pcie-x2", "nvml-refuse:call=NVML_FI_DEV_NO,code=4", "knows no such field. Give its number instead."),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetName,code=0", "0 is success"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlErrorString,code=4", "returns a text and no code"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetCount,code=4,gpu=0", "is a question about no GPU"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetName,code=4,gpu=2", "there is no GPU 2"),
        (
            "p100-pcie-x2",
            "nvml-refuse:call=nvmlDeviceGetName",
            "code is missing. Syntax: nvml-refuse:call=NAME,code=N[,gpu=N]",
        ),
        ("p100-pcie-x2", "nvml-text:call=nvmlDeviceGetSeral", "Did you mean nvmlDeviceGetSerial?"),
        ("p100-pcie-x2", "nvml-text:call=nvmlDeviceGetEccMode", "answers no text. These do: nvmlDeviceGetName, "),
        ("p100-pcie-x2", "nvml-text:call=nvmlDeviceGetName,kind=utf16", "choose one of latin1, empty, garbage"),
        ("p100-pcie-x2", "nvml-text:call=nvmlSystemGetProcessName,gpu=0", "is a question about no GPU"),
        ("p100-pcie-x2", "nvml-slow:seconds=0", "more than 0, such as 3 or 0.5"),
        ("p100-pcie-x2", "nvml-slow:seconds=-1", "more than 0, such as 3 or 0.5"),
        ("p100-pcie-x2", "nvml-release:branch=339", "branch=339: 340 to 579; profile p100-pcie-x2 has 580"),
        ("p100-pcie-x2", "nvml-release:branch=580", "branch=580: 340 to 579"),
        ("p100-pcie-x2", "nvlink-errors:gpu=0", "GPU 0 (Tesla P100-PCIE-16GB) has no NVLink"),
        ("hgx-h100-x8", "nvlink-errors:gpu=0,link=18", "the active links of GPU 0 are [0, 1, "),
        ("hgx-h100-x8", "nvlink-errors:gpu=0,kind=flux", "choose one of replay, recovery, crc"),
        ("rtx4090-x2", "ecc-uncorrected:gpu=0", "has no ECC, or it is off"),
        ("hgx-h100-x8", "ecc-uncorrected:gpu=0,counter=both", "volatile, or aggregate"),
        ("p100-pcie-x2", "ecc-uncorrected:gpu=0,where=sram", "dram, or from Turing on sram"),
        ("hgx-h100-x8", "ecc-uncorrected:gpu=0,count=0", "one or more"),
        ("rtx4090-x2", "row-remap-pending:gpu=0", "neither remaps rows nor retires pages"),
        ("p100-pcie-x2", "row-remap-failed:gpu=0", "NVML reports no remapped rows of GPU 0"),
        ("p100-pcie-x2", "throttle-thermal:by=magic", "hardware, or software"),
        ("p100-pcie-x2", "throttle-thermal:when=never", "when=never: always, or load"),
        ("p100-pcie-x2", "throttle-power-brake:gpu=first", "gpu=first: a number, or all"),
        ("p100-pcie-x2", "persistence-off:gpu=2", "there is no GPU 2"),
        ("no-gpu", "persistence-off", "profile no-gpu has no GPU"),
        ("p100-pcie-x2", "compute-exclusive:mode=shared", "choose one of exclusive-process, prohibited"),
        ("p100-pcie-x2", "mig-pending:gpu=0", "has no MIG"),
        ("p100-pcie-x2", "power-limit:watts=250", "takes 125 to 249; 250 is its default"),
        ("p100-pcie-x2", "p2p-status:pair=01", "two GPUs are written 0-1"),
        ("p100-pcie-x2", "p2p-status:pair=1-1", "two different GPUs"),
        ("p100-pcie-x2", "p2p-status:pair=0-2", "there is no GPU 2"),
        ("p100-pcie-x2", "p2p-status:pair=0-1,status=OK", "choose one of CNS, GNS, TNS, DR, NS"),
        ("p100-pcie-x2", "replay-rising:gpu=0,rate=0", "one or more a second"),
        ("p100-pcie-x2", "busy-gpu:gpu=0,memory=16000", "GPU 0 has 15360 MiB to give"),
        ("p100-pcie-x2", "busy-gpu:gpu=0,pid=0", "process ids begin with 1"),
        ("p100-pcie-x2", "pcie-gen:gpu=0,gen=3", "choose one of [1, 2]"),
        ("p100-pcie-x2", "pcie-gen:gpu=0", "gen is missing. Syntax: pcie-gen:gpu=N,gen=N[,when=always]"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=8,when=x", "when=x: always, or load"),
    ],
)
def test_fault_that_does_not_fit_is_refused(profile, fault, reason):
    loaded = simulator.load(profile)
    machine = build(loaded, loaded.driver.state())
    machine.faults = (fault,)
    with pytest.raises(ValueError, match=r"\S") as caught:
        apply(machine)

    assert reason in caught.value.args[0]
