"""The real pynvml on every simulated machine."""

import contextlib

import pynvml
import pytest

from gpucheck import simulator

PROFILES = [name for name in simulator.profile_names() if name != "no-gpu"]


@pytest.fixture(params=PROFILES)
def profile(request, nvml):
    nvml(request.param)
    return simulator.load(request.param)


def handles():
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def bus_id(pci):
    return pci.busId.lower()[4:]


def links(handle):
    """The state of every NVLink port, as a client finds them: up to the first refusal."""
    states: list[int] = []
    with contextlib.suppress(pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
        while True:
            states.append(pynvml.nvmlDeviceGetNvLinkState(handle, len(states)))
    return states


def test_handles_are_found_by_uuid_and_by_bus_id(profile):
    """A client may come back with either; both name the same GPU."""
    for index, handle in enumerate(handles()):
        by_uuid = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle))
        by_bus_id = pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        by_short = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id(pynvml.nvmlDeviceGetPciInfo(handle)))

        assert {pynvml.nvmlDeviceGetIndex(h) for h in (by_uuid, by_bus_id, by_short)} == {index}


def test_every_active_nvlink_ends_at_a_device_of_the_machine(profile):
    devices = {device.bus_id for device in profile.devices}
    for handle in handles():
        for link, active in enumerate(links(handle)):
            if active and not profile.nvlink.hidden_switch_links:
                remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                assert bus_id(remote) in devices - {bus_id(pynvml.nvmlDeviceGetPciInfo(handle))}


@pytest.mark.parametrize(
    ("name", "statuses"), [("rtx3090-x2-nvlink", [0, 0, 0]), ("rtx4090-x2", [2, 2, 5]), ("p100-pcie-x2", [0, 0, 5])]
)
def test_p2p_is_granted_by_link_or_by_product(nvml, name, statuses):
    """NVLink gives all; GeForce without a bridge has none; a PCIe data-center card has it without NVLink."""
    gpus = nvml(name)

    assert [pynvml.nvmlDeviceGetP2PStatus(*gpus, capability) for capability in (0, 1, 2)] == statuses


def test_h100_fabric_is_completed_and_healthy(nvml):
    for gpu in nvml("hgx-h100-x8"):
        for version in (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.c_nvmlGpuFabricInfo_v3_t):
            info = version()
            pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, pynvml.byref(info))
            assert (info.state, info.status, info.healthMask) == (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, 0, 0x1AA)
        assert info.healthSummary == pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY


def test_affinity_is_the_cpu_list_of_the_gpus_node(nvml):
    *_, last = nvml("hgx-h100-x8")
    words = pynvml.nvmlDeviceGetCpuAffinity(last, 16)
    cpus = {64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1}

    assert cpus == {*range(56, 112), *range(168, 224)}
    assert list(pynvml.nvmlDeviceGetMemoryAffinity(last, 2, pynvml.NVML_AFFINITY_SCOPE_NODE)) == [2, 0]


def test_what_a_product_lacks_is_not_supported(nvml):
    """Never a zero: a GeForce card has no ECC counters, a P100 neither NVLink nor fabric."""
    gpu = nvml("rtx4090-x2")[0]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkState(gpu, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetVgpuCapabilities(gpu, 0)
