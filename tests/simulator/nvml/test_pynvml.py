"""The real pynvml on every simulated machine."""

import contextlib

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.machine.profile import gpu_model, gpus_of

PROFILES = [name for name in simulator.profile_names() if name != "no-gpu"]
SINGLE, MULTIPLE, NODE, SYSTEM = 10, 20, 40, 50


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


def test_every_gpu_of_the_profile_is_there_in_bus_order(profile):
    wanted = gpus_of(profile)

    assert [bus_id(pynvml.nvmlDeviceGetPciInfo(h)) for h in handles()] == [device.bus_id for device in wanted]
    assert [pynvml.nvmlDeviceGetName(h) for h in handles()] == [gpu_model(device.gpu).name for device in wanted]
    assert len({pynvml.nvmlDeviceGetUUID(h) for h in handles()}) == len(wanted)


def test_handles_are_found_by_uuid_and_by_bus_id(profile):
    """A client may come back with either; both name the same GPU."""
    for index, handle in enumerate(handles()):
        by_uuid = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle))
        by_bus_id = pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        by_short = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id(pynvml.nvmlDeviceGetPciInfo(handle)))

        assert {pynvml.nvmlDeviceGetIndex(h) for h in (by_uuid, by_bus_id, by_short)} == {index}


def test_ancestors_and_p2p_are_the_same_both_ways(profile):
    for a in handles():
        for b in handles():
            assert pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b) == pynvml.nvmlDeviceGetTopologyCommonAncestor(b, a)
            for capability in range(5) if pynvml.nvmlDeviceGetIndex(a) != pynvml.nvmlDeviceGetIndex(b) else ():
                assert pynvml.nvmlDeviceGetP2PStatus(a, b, capability) == pynvml.nvmlDeviceGetP2PStatus(
                    b, a, capability
                )


def test_every_active_nvlink_ends_at_a_device_of_the_machine(profile):
    devices = {device.bus_id for device in profile.devices}
    for handle in handles():
        for link, active in enumerate(links(handle)):
            if active and not profile.nvlink.hidden_switch_links:
                remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                assert bus_id(remote) in devices - {bus_id(pynvml.nvmlDeviceGetPciInfo(handle))}


def test_link_count_field_agrees_with_the_link_calls(profile):
    """Each field has its own return code; an unknown one refuses without spoiling the others."""
    for handle in handles():
        count, unknown = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 9999])

        assert unknown.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert (count.value.uiVal if count.nvmlReturn == 0 else 0) == len(links(handle))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("p100-pcie-x2", [0, SINGLE]),
        ("p100-pcie-x2-sys", [0, SYSTEM]),
        ("rtx3090-x2-nvlink", [0, NODE]),
        ("rtx4090-x2", [0, 30]),
        ("dgx1-v100", [0, SINGLE, NODE, NODE, SYSTEM, SYSTEM, SYSTEM, SYSTEM]),
        ("hgx-a100-x8", [0, SINGLE, NODE, NODE, SYSTEM, SYSTEM, SYSTEM, SYSTEM]),
        ("hgx-h100-x8", [0, NODE, NODE, NODE, SYSTEM, SYSTEM, SYSTEM, SYSTEM]),
    ],
)
def test_path_class_follows_from_the_pci_tree(nvml, name, row):
    first, *_ = gpus = nvml(name)

    assert [pynvml.nvmlDeviceGetTopologyCommonAncestor(first, gpu) for gpu in gpus] == row


def test_two_switches_on_the_way_are_multiple():
    """No profile has cascaded switches yet; the rule must hold when one does."""
    from gpucheck.simulator.machine import build
    from gpucheck.simulator.machine.paths import common_ancestor

    profile = simulator.load("p100-pcie-x2")
    machine = build(profile, profile.driver.state())
    lower = [machine.functions["0000:02:00.0"], machine.functions["0000:03:08.0"]]
    for function, bus in zip(lower, ("0000:10:00.0", "0000:11:00.0"), strict=True):
        machine.functions[bus] = type(function)(**{**vars(function), "bus_id": bus})
    machine.functions["0000:10:00.0"].parent = "0000:03:08.0"
    machine.functions["0000:11:00.0"].parent = "0000:10:00.0"
    machine.functions["0000:04:00.0"].parent = "0000:11:00.0"

    assert common_ancestor(machine, *machine.gpus) == MULTIPLE


@pytest.mark.parametrize(
    ("name", "statuses"),
    [("rtx3090-x2-nvlink", [0, 0, 0]), ("rtx4090-x2", [2, 2, 5]), ("p100-pcie-x2", [0, 0, 5])],
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


def test_state_calls_of_the_common_monitors(nvml):
    """What gpustat and nvitop ask for, beyond the identity of a GPU."""
    gpu = nvml("hgx-h100-x8")[0]
    memory, memory_2 = pynvml.nvmlDeviceGetMemoryInfo(gpu), pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)

    assert memory.total == memory_2.total == 81559 << 20
    assert (memory.used, memory_2.used) == (memory_2.reserved, 0)
    assert memory.free == memory_2.free == memory.total - memory.used
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    assert pynvml.nvmlDeviceGetEccMode(gpu) == [1, 1]
    assert pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 0
    assert pynvml.nvmlDeviceGetCudaComputeCapability(gpu) == (9, 0)
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total == 128 << 30
    assert pynvml.nvmlDeviceGetTemperatureV(gpu, 0) == pynvml.nvmlDeviceGetTemperature(gpu, 0) == 34
    assert pynvml.nvmlDeviceGetPowerUsage(gpu) < pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 700_000
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 0
    assert pynvml.nvmlDeviceGetPersistenceMode(gpu) == 1
    assert pynvml.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.178.04"


def test_what_a_product_lacks_is_not_supported(nvml):
    """Never a zero: a GeForce card has no ECC counters, a P100 neither NVLink nor fabric."""
    gpu = nvml("rtx4090-x2")[0]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkState(gpu, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetVgpuCapabilities(gpu, 0)


def test_slot_narrower_than_the_card_is_the_maximum(nvml):
    """x8 slots: the card alone could do 16 lanes, NVML's maximum is what both ends can."""
    gpu = nvml("rtx4090-x2")[0]

    assert (pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)) == (8, 8)
    assert pynvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu) == 4


def test_machine_without_gpu_has_no_driver(activate):
    activate("no-gpu")
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
