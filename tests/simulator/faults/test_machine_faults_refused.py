"""A fault of the machine around the GPUs that it cannot have, or that is written wrongly, is refused in words."""

import pytest

from gpucheck import simulator


@pytest.mark.parametrize(
    ("profile", "fault", "reason"),
    [
        ("hgx-h100-x8", "module-flavour", "run with either flavour"),
        ("no-gpu", "module-flavour", "no driver is loaded"),
        ("no-gpu", "module-rejected", "no driver is loaded"),
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
        ("hgx-h100-x8", "iommu-translating:type=identity", "DMA, or DMA-FQ"),
        ("p100-pcie-x2", "rebar-off", "has one size only"),
        ("p100-pcie-x2", "xid:gpu=0,code=1", "code=1: there are 13, 31"),
        ("p100-pcie-x2", "xid:gpu=0,code=79,count=0", "at least once"),
        ("p100-pcie-x2", "xid:gpu=0,code=79,age=999999999", "the machine runs since"),
        ("p100-pcie-x2", "sxid:code=20034", "no NVSwitch on its PCI bus"),
        ("p100-pcie-x2", "iommu-faults:gpu=0", "has no IOMMU"),
        ("h200-x1", "aer-rising", "shows no error reporting"),
        ("p100-pcie-x2", "aer-rising:kind=soft", "one of correctable, nonfatal, fatal"),
        ("p100-pcie-x2", "aer-rising:count=0", "at least one error"),
        ("p100-pcie-x2", "aer-rising:bus_id=nope", "no such device"),
        ("p100-pcie-x2", "nccl-env:name=nccl", "of capitals, digits and _"),
        ("p100-pcie-x2", "library-mismatch:library=mkl", "one of nccl, cudnn, cudart"),
        ("p100-pcie-x2", "two-libraries:library=mkl", "one of cudart"),
        ("p100-pcie-x2", "node-missing:node=nvidia7", "one of nvidia-uvm"),
        ("no-gpu", "node-missing", "no driver is loaded"),
        ("h200-x1", "governor-powersave", "sets no CPU clocks"),
        ("p100-pcie-x2", "uplink-gen:gen=2,gpus=0", "invalid parameter 'gpus=0'. Did you mean gpu?"),
    ],
)
def test_fault_that_does_not_fit_is_refused_in_words(tmp_path, profile, fault, reason):
    machine = simulator.load(profile)
    with pytest.raises((LookupError, ValueError)) as caught:
        simulator.write_machine(
            machine, tmp_path, driver=machine.driver.state(), faults=[fault], kernel="6.8.0-87-generic", software=True
        )

    assert reason in str(caught.value.args[0])
    assert fault.partition(":")[0] in str(caught.value.args[0])
