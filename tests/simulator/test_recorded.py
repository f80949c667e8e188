"""A machine, recorded and made again: the same topology, links and models, for every profile."""

import msgspec
import pytest

from gpucheck import simulator
from gpucheck.host import live_host
from gpucheck.model import DriverState, Gpu, NvLink, NvmlFailure, NvmlReading, PciDevice, PcieLink, System
from gpucheck.simulator.machine import build
from gpucheck.topology import build as topology

SYSTEM = System(hostname="h", os_id="ubuntu", os_version="22.04", os_name="Ubuntu", arch="x86_64", kernel="6.8.0")
# Those with a driver
NAMES = [name for name in simulator.profile_names() if name != "no-gpu"]
BRIDGES = ("root-port", "switch-upstream", "switch-downstream")


def pci(name, *, kinds=True):
    """The functions of a profile as gpucheck.host reads them; without kinds as a user who is not root reads them."""
    machine = build(simulator.load(name), DriverState())
    return [
        PciDevice(
            bus_id=one.bus_id,
            vendor_id=one.ids[:4],
            device_id=one.ids[5:],
            class_id=one.class_id,
            numa_node=one.numa_node,
            path=tuple(bridge.bus_id for bridge in machine.chain(one.bus_id)),
            root=one.root,
            link=PcieLink(
                generation=one.generation,
                width=one.width,
                max_generation=one.max_generation,
                max_width=one.max_width,
                device_max_generation=one.max_generation,
            ),
            kind=(one.kind if kinds else "bridge") if one.kind in BRIDGES else None,
            iommu_type=None if machine.iommu == "off" else machine.iommu,
            net_names=one.net,
            infiniband_names=one.infiniband,
        )
        for one in machine.functions.values()
    ]


def recording(reading, functions, **more):
    """Decoded JSON of a recording, with more in it than a profile needs."""
    values = {"schema": "gpucheck.recording/1", "system": SYSTEM, "driver": DriverState(), "pci": functions,
              "nvml": reading, "limits": {}, "kernel_log": {}} | more  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(values))


@pytest.fixture
def read(activate):
    def read(name):
        activate(name)
        return live_host(isolated=False, deadline_s=20).nvml()

    return read


def shown(reading, functions):
    """What has to be the same: the matrix, the models, the links. Ports of one cable may be numbered otherwise."""
    models = [(gpu.name, gpu.device_id, gpu.memory_bytes, gpu.compute_capability, gpu.pcie) for gpu in reading.gpus]
    links = [
        [(link.link, link.active, link.version, link.remote_kind, link.remote_bus_id) for link in gpu.nvlinks]
        for gpu in reading.gpus
    ]
    affinity = [(gpu.numa_node, gpu.cpu_affinity) for gpu in reading.gpus]
    return topology(reading, tuple(functions), simulated=True).matrix, reading.ancestors, models, links, affinity


@pytest.mark.parametrize("name", NAMES)
def test_recorded_machine_is_the_same_machine(read, tmp_path, name):
    """With what only root reads, and without it."""
    reading, functions = read(name), pci(name)
    for seen in (functions, pci(name, kinds=False)):
        profile = simulator.from_recording(recording(reading, seen))
        file = tmp_path / "again.yml"
        file.write_text(simulator.to_yaml(profile))
        again = read(str(file))

        assert shown(again, functions) == shown(reading, functions)
        assert simulator.load(str(file)).devices == profile.devices


def test_unknown_gpu_keeps_its_own_values(read, tmp_path):
    gpu = Gpu(
        index=0,
        name="NVIDIA B999 Prototype",
        uuid="GPU-0",
        pci_bus_id="0000:01:00.0",
        device_id="3fff",
        compute_capability="12.1",
        memory_bytes=512 << 30,
        bar1_bytes=512 << 30,
        numa_node=0,
        cpu_affinity="0-7",
        pcie=PcieLink(generation=6, width=16, max_generation=6, max_width=16, device_max_generation=6),
        nvlinks=(
            NvLink(link=0, active=True, version=7, remote_kind="switch", speed_mb_s=53125),
            NvLink(link=1, active=False),
        ),
    )
    reading = NvmlReading(driver_version="580.178.04", nvml_version="13", cuda_version="13.0", gpus=(gpu,))
    profile = simulator.from_recording(recording(reading, []))
    (tmp_path / "own.yml").write_text(simulator.to_yaml(profile))
    seen = read(str(tmp_path / "own.yml")).gpus[0]

    assert (seen.name, seen.device_id, seen.compute_capability) == (gpu.name, gpu.device_id, gpu.compute_capability)
    assert (seen.memory_bytes, seen.bar1_bytes, seen.pcie) == (gpu.memory_bytes, gpu.bar1_bytes, gpu.pcie)
    assert [link.active for link in seen.nvlinks] == [True, False]
    assert "NVIDIA B999 Prototype" in profile.summary


def test_link_that_was_down_stays_down(read, activate):
    """The cable is gone at both ends; no other one moves into its place."""
    activate("dgx1-v100", ["nvlink-down:gpu=0,link=2"])
    reading = live_host(isolated=False, deadline_s=20).nvml()
    functions = pci("dgx1-v100")
    profile = simulator.from_recording(recording(reading, functions))
    machine = build(profile, DriverState())

    assert [[link.active for link in gpu.links] for gpu in machine.gpus] == [
        [link.active for link in gpu.nvlinks] for gpu in reading.gpus
    ]


def test_narrow_link_stays_narrow(read):
    """As trained when it was recorded."""
    functions = [
        msgspec.structs.replace(one, link=msgspec.structs.replace(one.link, width=4)) if one.is_nvidia_gpu else one
        for one in pci("l40s-x4")
    ]
    profile = simulator.from_recording(recording(read("l40s-x4"), functions))

    assert {device.trained for device in profile.devices if device.gpu} == {(4, 4)}


def test_without_nvml_the_device_ids_tell_the_models():
    """Also GPUs that fell off the bus are there again: a profile is the machine, not its fault."""
    failure = NvmlFailure(call="nvmlInit", code=9, name="NVMLError_DriverNotLoaded")
    profile = simulator.from_recording(recording(failure, pci("p100-pcie-x2")))

    assert [device.gpu for device in profile.devices if device.gpu] == ["p100-pcie-16gb"] * 2
    assert profile.driver.present is False


def test_unknown_gpu_without_nvml_is_refused():
    failure = NvmlFailure(call="nvmlInit", code=9, name="NVMLError_DriverNotLoaded")
    unknown = PciDevice(bus_id="0000:01:00.0", vendor_id="10de", device_id="ffff", class_id="030200", root="0000:01")
    with pytest.raises(ValueError, match=r"GPU 0000:01:00\.0 \(10de:ffff\) is not a known GPU model"):
        simulator.from_recording(recording(failure, [unknown]))
