"""A rank finds its GPU by bus id, on a stand-in of torch.cuda."""

from types import SimpleNamespace

import pytest

from gpucheck.measure.collectives.rank import ordinal
from gpucheck.model.device import Device


def test_devices_are_found_by_bus_id_and_never_by_number():
    shown = [
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0, uuid="b"),
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0, uuid="a"),
    ]
    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda ordinal: shown[ordinal])
    fake = SimpleNamespace(cuda=cuda)

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0"), None) == 1
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"), None)


def test_a_build_that_tells_no_bus_id_is_helped_by_the_runtime():
    def by_bus_id(answer, bus_id):
        if bus_id != b"0000:1b:00.0":
            return 10  # cudaErrorInvalidDevice
        answer._obj.value = 1
        return 0

    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda number: SimpleNamespace(name="x"))
    fake, runtime = SimpleNamespace(cuda=cuda), SimpleNamespace(cudaDeviceGetByPCIBusId=by_bus_id)

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0"), runtime) == 1
    with pytest.raises(LookupError, match="not among the 2"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"), runtime)
