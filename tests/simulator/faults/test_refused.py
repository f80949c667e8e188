"""A fault that a machine cannot have, or that is written wrongly, is rejected with its name and the reason."""

import pytest

from gpucheck import simulator


@pytest.mark.parametrize(
    ("profile", "fault", "reason"),
    [
        # The syntax
        ("p100-pcie-x2", "pcie-with:gpu=0,width=8", "Did you mean pcie-width?"),
        ("p100-pcie-x2", "pcie-width", "gpu is missing"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=8,depth=1", "invalid parameter 'depth=1'"),
        ("p100-pcie-x2", "pcie-width:gpu=0,gpu=1,width=8", "invalid parameter 'gpu=1'"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=", "invalid parameter 'width='"),
        ("p100-pcie-x2", "pcie-width:", "invalid parameter ''"),
        ("p100-pcie-x2", "pcie-width:gpu=-1,width=8", "gpu is a number of 0 or more, not '-1'"),
        ("p100-pcie-x2", "pcie-width:gpu=2,width=8", "there is no GPU 2; profile p100-pcie-x2 has GPUs 0 to 1"),
        ("p100-pcie-x2", "pcie-width:gpu=0,width=16", "choose one of [1, 2, 4, 8]"),
        ("h200-x1", "nvlink-down:gpu=0,link=18", "the active links of GPU 0 are [0, 1, "),
        ("hgx-a100-x8", "fabric-in-progress", "no GPU of profile hgx-a100-x8 reports"),
        ("no-gpu", "nouveau", "has no GPU for nouveau to hold"),
        ("no-gpu", "driver-mismatch", "no driver is loaded"),
        ("p100-pcie-x2", "driver-mismatch:loaded=580.178.04", "is the version of the library too"),
        # The machine around the GPUs
        ("hgx-h100-x8", "module-flavour", "run with either flavour"),
        ("no-gpu", "dkms-not-built", "no driver is installed"),
        ("p100-pcie-x2", "dkms-not-built:why=x", "one of failed, no-headers"),
        ("p100-pcie-x2-sys", "uplink-gen:gpu=0,gen=2", "its own link is the fault pcie-gen"),
        ("p100-pcie-x2", "uplink-gen:gen=2", "name the link"),
        ("p100-pcie-x2", "uplink-gen:gen=2,gpu=0,bus_id=0000:02:00.0", "name the link"),
        ("p100-pcie-x2", "uplink-gen:gen=4,gpu=0", "runs at generation 3"),
        ("p100-pcie-x2", "uplink-gen:gen=3,gpu=0", "would be as it is"),
        ("p100-pcie-x2", "uplink-gen:gen=2,gpu=0,width=3", "choose one of [1, 2, 4, 8, 16]"),
        ("p100-pcie-x2", "uplink-gen:gen=2,bus_id=0000:ff:00.0", "no such device"),
        ("p100-pcie-x2", "uplink-gen:gen=2,bus_id=0000:04:00.0", "is no port between a switch"),
        ("p100-pcie-x2", "fabric-manager-stopped", "needs no fabric manager"),
        ("hgx-h100-x8", "fabric-manager-version:version=580.178.04", "is the driver's own"),
        ("h200-x1", "acs-redirect", "shows no port with ACS"),
        ("p100-pcie-x2", "acs-redirect:bus_id=0000:04:00.0", "no switch or port with ACS"),
        ("h200-x1", "iommu-translating", "its IOMMU is its host's"),
        ("p100-pcie-x2", "rebar-off", "has one size only"),
        ("p100-pcie-x2", "xid:gpu=0,code=1", "code=1: there are 13, 31"),
        ("p100-pcie-x2", "xid:gpu=0,code=79,count=0", "at least once"),
        ("p100-pcie-x2", "xid:gpu=0,code=79,age=999999999", "the machine runs since"),
        ("p100-pcie-x2", "sxid:code=20034", "no NVSwitch on its PCI bus"),
        ("p100-pcie-x2", "iommu-faults:gpu=0", "has no IOMMU"),
        ("h200-x1", "aer-rising", "shows no error reporting"),
        ("p100-pcie-x2", "aer-rising:count=0", "at least one error"),
        ("p100-pcie-x2", "nccl-env:name=nccl", "of capitals, digits and _"),
        ("p100-pcie-x2", "library-mismatch:library=mkl", "one of nccl, cudnn, cudart"),
        ("p100-pcie-x2", "node-missing:node=nvidia7", "one of nvidia-uvm"),
        ("h200-x1", "governor-powersave", "sets no CPU clocks"),
        ("p100-pcie-x2", "uplink-gen:gen=2,gpus=0", "invalid parameter 'gpus=0'. Did you mean gpu?"),
        # The GPUs
        ("p100-pcie-x2", "nvml-hang:call=nvmlDeviceGetNam", "no such function. Did you mean nvmlDeviceGetName?"),
        ("p100-pcie-x2", "nvml-hang:state=dead", "choose one of sleeping, uninterruptible"),
        ("p100-pcie-x2", "nvml-refuse:call=NVML_FI_DEV_NO,code=4", "knows no such field. Give its number instead."),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetName,code=0", "0 is success"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlErrorString,code=4", "returns a text and no code"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetCount,code=4,gpu=0", "is a question about no GPU"),
        ("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetName", "Syntax: nvml-refuse:call=NAME,code=N[,gpu=N]"),
        ("p100-pcie-x2", "nvml-text:call=nvmlDeviceGetEccMode", "answers no text. These do: nvmlDeviceGetName, "),
        ("p100-pcie-x2", "nvml-slow:seconds=0", "more than 0, such as 3 or 0.5"),
        ("p100-pcie-x2", "nvml-release:branch=339", "branch=339: 340 to 579; profile p100-pcie-x2 has 580"),
        ("p100-pcie-x2", "nvlink-errors:gpu=0", "GPU 0 (Tesla P100-PCIE-16GB) has no NVLink"),
        ("rtx4090-x2", "ecc-uncorrected:gpu=0", "has no ECC, or it is off"),
        ("p100-pcie-x2", "ecc-uncorrected:gpu=0,where=sram", "dram, or from Turing on sram"),
        ("hgx-h100-x8", "ecc-uncorrected:gpu=0,count=0", "one or more"),
        ("rtx4090-x2", "row-remap-pending:gpu=0", "neither remaps rows nor retires pages"),
        ("p100-pcie-x2", "row-remap-failed:gpu=0", "NVML reports no remapped rows of GPU 0"),
        ("p100-pcie-x2", "throttle-thermal:when=never", "when=never: always, or load"),
        ("p100-pcie-x2", "throttle-power-brake:gpu=first", "gpu=first: a number, or all"),
        ("no-gpu", "persistence-off", "profile no-gpu has no GPU"),
        ("p100-pcie-x2", "mig-pending:gpu=0", "has no MIG"),
        ("p100-pcie-x2", "power-limit:watts=250", "choose 125 to 249; 250 is the default"),
        ("p100-pcie-x2", "p2p-status:pair=01", "a pair is written 0-1"),
        ("p100-pcie-x2", "p2p-slow:pair=1-01", "two different GPUs"),
        ("p100-pcie-x2", "p2p-slow:pair=0-1,percent=100", "choose 1 to 99"),
        ("p100-pcie-x2", "replay-rising:gpu=0,rate=0", "one or more a second"),
        ("p100-pcie-x2", "busy-gpu:gpu=0,memory=16000", "GPU 0 has 15360 MiB to give"),
        ("p100-pcie-x2", "busy-gpu:gpu=0,pid=0", "process ids begin with 1"),
        ("p100-pcie-x2", "sdc:gpu=0,rate=2", "rate"),
        ("p100-pcie-x2", "sdc:gpu=0,kind=never", "kind=never"),
        ("p100-pcie-x2", "pcie-gen:gpu=0,gen=3", "choose one of [1, 2]"),
    ],
)
def test_fault_that_does_not_fit_is_rejected(tmp_path, profile, fault, reason):
    machine = simulator.load(profile)
    recipe = simulator.Recipe(profile=machine, driver=machine.driver.state(), faults=(fault,), software=True)
    with pytest.raises((LookupError, ValueError)) as caught:
        simulator.write_machine(recipe, tmp_path)
    assert reason in str(caught.value.args[0])
    assert fault.partition(":")[0] in str(caught.value.args[0])
