"""NVLink ports and the fabric as read from NVML: refusals keep their code, and no value replaces a missing one."""

import pytest

from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import NvLink5Counts

STATE = "nvmlDeviceGetNvLinkState"


def gaps(reading, call, bus_id):
    of = [gap for gap in reading.gaps if gap.call.startswith(call) and bus_id in gap.subject]
    return [(gap.subject.rpartition("/")[2], gap.code) for gap in of]


@pytest.mark.parametrize("code", [3, 4, 13, 999])
def test_refused_state_of_the_first_link_is_kept(changed, code):
    reading = changed("h100-nvl-x2", {f"call.{STATE}": code})
    first = reading.gpus[0]

    assert first.nvlinks == ()
    assert gaps(reading, STATE, first.pci_bus_id)[0] == ("0", code)


def test_lost_gpu_is_not_asked_about_each_of_its_links(changed):
    reading = changed("h100-nvl-x2", {f"call.{STATE}": 15})

    assert gaps(reading, STATE, reading.gpus[0].pci_bus_id) == [("0", 15)]


def test_refused_state_of_one_link_costs_that_link(changed):
    reading = changed("hgx-h100-x8", {"gpu.0.nvlink.4.active": "!999"})
    first = reading.gpus[0]

    assert [link.link for link in first.nvlinks] == [n for n in range(18) if n != 4]
    assert gaps(reading, STATE, first.pci_bus_id) == [("4", 999)]


def test_links_are_trained_before_their_state_is_read(activate):
    """NCCL queries P2P_SUPPORTED first: the driver trains the links of a GPU that was not used yet."""
    activate("h100-nvl-x2", ())
    calls = []
    read_nvml(lambda call, subject: calls.append((call, subject)))
    link = next(subject for call, subject in calls if call == STATE)

    assert calls.index(("nvmlDeviceGetNvLinkCapability", link)) < calls.index((STATE, link))


@pytest.mark.parametrize(("value", "state"), [(2, "asleep"), (3, "traffic-off"), (0, "inactive")])
def test_link_state_is_the_field_that_nccl_reads_from_hopper_on(changed, value, state):
    """NCCL skips every link whose field 165 is not 1."""
    reading = changed("hgx-h100-x8", {"gpu.0.field.165.2": value})
    link = reading.gpus[0].nvlinks[2]

    assert (link.state, link.active) == (state, False)
    assert reading.gpus[0].active_nvlinks == 17


def test_field_of_the_state_is_not_read_before_hopper(changed):
    reading = changed("hgx-a100-x8", {"gpu.0.field.165.2": 0})

    assert reading.gpus[0].active_nvlinks == 12


def test_sentinel_of_a_hidden_switch_is_no_bus_id(changed):
    """In a guest the far end is FFFFFFFF:FF:FF.0."""
    reading = changed("hgx-h100-x8", {"gpu.0.nvlink.0.remote.bus_id": "ffffffff:ff:ff.0"})

    assert reading.gpus[0].nvlinks[0].remote_bus_id is None
    assert reading.gpus[0].nvlinks[1].remote_bus_id == "0000:05:00.0"


def test_counters_of_nvlink_5(changed):
    """Link 14 of a GB200 had 505 recovery events and nothing else, of 320 GPUs (marin-community/marin#9086)."""
    reading = changed("gb200-x4", {"gpu.0.field.215.14": "505ull", "gpu.0.field.213.14": "505ull"})
    links = reading.gpus[0].nvlinks
    floor = 0xFFF

    assert links[14].counts == NvLink5Counts(
        malformed_packets=0,
        buffer_overruns=0,
        receive_errors=0,
        receive_remote_errors=0,
        receive_general_errors=0,
        integrity_errors=0,
        transmit_discards=0,
        recoveries_succeeded=505,
        recoveries_failed=0,
        recoveries=505,
        effective_errors=0,
        effective_ber=floor,
        symbol_errors=0,
        symbol_ber=floor,
    )
    assert links[13].counts.recoveries == 0
    assert (links[14].replay_errors, links[14].recovery_errors, links[14].crc_errors) == (None, None, None)
    assert not [gap for gap in reading.gaps if "NVLINK_ERROR_DL" in gap.call or "ErrorCounter" in gap.call]


def test_driver_that_has_the_older_fabric_call_only(changed):
    """Drivers 525 and 535: nvmlDeviceGetGpuFabricInfo, which reports no health."""
    reading = changed("hgx-h100-x8", {"call.nvmlDeviceGetGpuFabricInfoV": 13})
    fabric = reading.gpus[0].fabric

    assert (fabric.state, fabric.status, fabric.health_mask) == ("completed", 0, None)
    assert not [gap for gap in reading.gaps if "FabricInfo" in gap.call]


@pytest.mark.parametrize(("newer", "older", "kept"), [(13, 13, 13), (13, 999, 999), (4, None, 4)])
def test_refused_fabric_state_keeps_its_code(changed, newer, older, kept):
    reading = changed(
        "hgx-h100-x8", {"call.nvmlDeviceGetGpuFabricInfoV": newer, "call.nvmlDeviceGetGpuFabricInfo": older}
    )

    assert reading.gpus[0].fabric is None
    assert [code for _, code in gaps(reading, "nvmlDeviceGetGpuFabricInfo", reading.gpus[0].pci_bus_id)] == [kept]
