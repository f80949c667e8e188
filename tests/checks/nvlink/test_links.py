"""NVLink: what is off on purpose, what is down, and what could not be read are three things."""

import pytest
from msgspec.structs import replace as changed

from gpucheck.checks.nvlink import errors as nvlink_errors
from gpucheck.checks.nvlink import links as nvlink
from gpucheck.model import DEFECT, NvLink5Counts, NvmlGap
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import DRIVER, h100, p100, reading

STATE = "nvmlDeviceGetNvLinkState"
# As /proc/driver/nvidia/params prints them.
OFF = 'EnableMSI: 1\nNvLinkDisable: 1\nRegistryDwords: ""\n'
ON = OFF.replace("Disable: 1", "Disable: 0")


def with_links(gpu, up, ports=18):
    """The GPU with the first `up` of its ports active, and the others inactive."""
    links = tuple(changed(link, active=n < up, state=None) for n, link in enumerate(gpu.nvlinks[:ports]))
    return changed(gpu, nvlinks=links)


def refused(*gpus, code, call=STATE, link=0, name="NVMLError_Unknown"):
    gaps = tuple(NvmlGap(call=call, subject=f"link:{gpu.pci_bus_id}/{link}", code=code, name=name) for gpu in gpus)
    return changed(reading(*gpus), gaps=gaps)


def host(nvml, virtual=None, params=ON):
    files = {} if params is None else {"/proc/driver/nvidia/params": params}
    return facts(nvml=nvml, system=changed(SYSTEM, virtual=virtual), files=files)


NONE = [changed(h100(n), nvlinks=()) for n in range(4)]


@pytest.mark.parametrize("code", [4, 13, 26, 999, DEFECT])
def test_refused_link_state_is_unknown_with_its_call(code):
    """Nothing was seen, so nothing is missing."""
    (finding,) = judge(nvlink, host(refused(NONE[0], code=code)))

    assert (finding.verdict, finding.cause) == (UNKNOWN, None)
    assert finding.evidence[0].startswith(STATE)


def test_lost_gpu_is_left_to_the_inventory():
    (finding,) = judge(nvlink, host(refused(NONE[0], code=15)))

    assert (finding.verdict, finding.because_of) == (UNKNOWN, "inventory")


def test_link_that_was_not_read_is_not_missing():
    """17 of 18 were read, and all of them are up."""
    some = changed(h100(0), nvlinks=tuple(link for link in h100(0).nvlinks if link.link != 4))
    (finding, other) = judge(nvlink, host(changed(refused(some, code=999, link=4), gpus=(some, h100(1)))))

    assert (finding.verdict, other.verdict) == (UNKNOWN, PASS)


@pytest.mark.parametrize("virtual", [None, "kvm"])
@pytest.mark.parametrize("gpu", [NONE[0], with_links(h100(0), 0)], ids=["not-supported", "inactive"])
def test_one_gpu_without_nvlink_has_no_peer_to_reach(gpu, virtual):
    """Providers switch NVLink off for guests with one GPU, and NVML then reports no link, or inactive ones."""
    (finding,) = judge(nvlink, host(refused(gpu, code=3), virtual))

    assert (finding.verdict, finding.cause, finding.code) == (SKIP, None, "nvlink.one-gpu")


@pytest.mark.parametrize("virtual", [None, "kvm"])
def test_nvlink_that_a_driver_option_switches_off_is_named(virtual):
    (finding,) = judge(nvlink, host(refused(*NONE, code=3), virtual, OFF))

    assert (finding.verdict, finding.subject, finding.code) == (SKIP, "host", "nvlink.switched-off")
    assert finding.evidence == ("/proc/driver/nvidia/params: NvLinkDisable: 1",)


@pytest.mark.parametrize(
    ("gpus", "code"),
    [
        (NONE, "nvlink.guest-without-nvlink"),
        ([with_links(h100(n), 0) for n in range(4)], "nvlink.guest-without-active"),
    ],
)
def test_guest_without_any_nvlink_has_it_switched_off_by_its_provider(gpus, code):
    found = judge(nvlink, host(refused(*gpus, code=3), "kvm"))

    assert {(f.verdict, f.code) for f in found} == {(SKIP, code)}


@pytest.mark.parametrize(
    ("gpus", "cause", "confidence"),
    [
        (NONE, "nvlink-missing", "likely"),
        ([NONE[0], h100(1)], "nvlink-missing", "likely"),
        ([with_links(h100(n), 0) for n in range(2)], "nvlink-down", "certain"),
        ([with_links(h100(0), 0), h100(1)], "nvlink-down", "certain"),
        ([with_links(h100(0), 17), h100(1)], "nvlink-down", "certain"),
        ([with_links(h100(0), 12, ports=12), h100(1)], "nvlink-missing", "likely"),
    ],
)
def test_links_missing_on_bare_metal_fail(gpus, cause, confidence):
    """Certain needs ports that NVML reports inactive; that it reports none may have other reasons."""
    finding = judge(nvlink, host(_read(gpus)))[0]

    assert (finding.verdict, finding.cause, finding.confidence) == (FAIL, cause, confidence)


def _read(gpus):
    none = [gpu for gpu in gpus if not gpu.nvlinks]
    return changed(reading(*gpus), gaps=refused(*none, code=3).gaps) if none else reading(*gpus)


@pytest.mark.parametrize(
    ("up", "far_end", "subjects"),
    [
        ((18, 17, 17, 18), "gpu", {"pair:1-2"}),
        ((18, 17, 17, 18), "switch", {"gpu:1", "gpu:2"}),
        ((18, 17, 17, 18), None, {"gpu:1", "gpu:2"}),
        ((18, 17, 16, 18), "gpu", {"gpu:1", "gpu:2"}),
        ((17, 17, 17, 18), "gpu", {"gpu:0", "gpu:1", "gpu:2"}),
        ((17, 18, 18, 18), "gpu", {"gpu:0"}),
    ],
)
def test_a_link_between_two_gpus_that_is_down_is_one_finding(up, far_end, subjects):
    """Only where no other GPU can be at the far end."""
    gpus = [with_links(h100(n), links) for n, links in enumerate(up)]
    gpus = [changed(g, nvlinks=tuple(changed(link, remote_kind=far_end) for link in g.nvlinks)) for g in gpus]
    number = {gpu.pci_bus_id: str(gpu.index) for gpu in gpus}

    found = [finding for finding in judge(nvlink, host(reading(*gpus))) if finding.verdict is FAIL]

    named = (finding.subject.partition(":") for finding in found)
    assert subjects == {f"{kind}:{'-'.join(number[i] for i in ids.split('-'))}" for kind, _, ids in named}


def test_inactive_link_of_a_guest_is_certain_where_a_peer_has_all_its_links():
    """Otherwise the hypervisor may have kept some."""
    broken = with_links(h100(0), 17)
    alone = judge(nvlink, host(reading(broken, broken), "kvm"))[0]
    with_peer = judge(nvlink, host(reading(broken, h100(1)), "kvm"))[0]

    assert [(f.verdict, f.confidence) for f in (alone, with_peer)] == [(FAIL, "likely"), (FAIL, "certain")]
    assert with_peer.evidence == ("nvmlDeviceGetNvLinkState: 17 of 18 ports active, inactive: 17",)


def test_four_of_six_links_of_a_v100_in_a_guest():
    """Azure/azhpc-diagnostics#73: GPU 3 of a guest with links 3 and 5 inactive."""
    links = tuple(changed(h100(0).nvlinks[n], active=n not in (3, 5)) for n in range(6))
    full = tuple(changed(h100(0).nvlinks[n], active=True) for n in range(6))
    v100s = [
        changed(h100(n), device_id="1db5", name="Tesla V100-SXM2-32GB", nvlinks=links if n == 3 else full)
        for n in range(4)
    ]
    found = judge(nvlink, host(reading(*v100s), "microsoft"))

    assert [f.verdict for f in found] == [PASS, PASS, PASS, FAIL]
    assert (found[3].seen, found[3].wanted, found[3].unit) == (4, 6, "NVLinks")
    assert found[3].values["links"] == (3, 5)


def test_guest_whose_bridge_was_not_set_up_is_skipped():
    """Azure/azhpc-images#443: a bridged model; such guests came up without links, and had them after a reboot."""
    gpus = [changed(with_links(h100(n), 0, ports=12), device_id="2321", name="NVIDIA H100 NVL") for n in range(2)]
    found = judge(nvlink, host(reading(*gpus), "microsoft"))

    assert {f.verdict for f in found} == {SKIP}


def test_model_of_the_table_without_nvlink_is_no_unknown_model():
    """An NVML that answers "disabled" for ports of an L40S: there is nothing to miss."""
    ports = tuple(changed(link, active=False) for link in h100(0).nvlinks)
    l40s = [changed(p100(n), device_id="26b9", name="NVIDIA L40S", nvlinks=ports) for n in range(2)]
    (finding,) = judge(nvlink, host(reading(*l40s)))

    assert (finding.verdict, finding.code) == (SKIP, "nvlink.no-nvlink")


def test_links_that_sleep_are_a_warning():
    """NCCL takes links in state 1 only; asleep is 2."""
    links = tuple(changed(link, active=link.link != 2, state="active") for link in h100(0).nvlinks)
    sleepy = changed(h100(0), nvlinks=(*links[:2], changed(links[2], state="asleep"), *links[3:]))
    finding, _ = judge(nvlink, host(reading(sleepy, h100(1))))

    assert (finding.verdict, finding.cause, finding.seen) == (WARN, None, 17)


def test_links_that_a_driver_option_limits_are_enough():
    """NVreg_RmNvlinkBandwidthLinkCount, as the driver's params list it."""
    gpus = [with_links(h100(n), 12, ports=12) for n in range(2)]
    found = judge(nvlink, host(reading(*gpus), params=f"{ON}RmNvlinkBandwidthLinkCount: 12\n"))

    assert {f.verdict for f in found} == {PASS}


def counting(gpu, link=0, **counts):
    quiet = dict.fromkeys(NvLink5Counts.__struct_fields__, 0) | {"effective_ber": 0xFFF, "symbol_ber": 0xFFF}
    links = tuple(
        changed(port, counts=NvLink5Counts(**(quiet | counts if port.link == link else quiet))) for port in gpu.nvlinks
    )
    return changed(gpu, nvlinks=links)


@pytest.mark.parametrize(
    ("counts", "verdict", "seen"),
    [
        ({}, PASS, "0 errors on 18 NVLinks"),
        ({"recoveries": 505, "recoveries_succeeded": 505}, WARN, "NVLink 14: 505 recoveries"),
        ({"recoveries_failed": 1}, WARN, "NVLink 14: 1 recovery"),
        ({"receive_errors": 12000}, WARN, "NVLink 14: 12,000 receive errors"),
        ({"symbol_errors": 90}, PASS, "90 errors on 18 NVLinks"),
        ({"effective_ber": 0x30F}, PASS, "0 errors on 18 NVLinks"),
    ],
)
def test_counters_of_blackwell_are_judged(counts, verdict, seen):
    """marin-community/marin#9086: 505 recoveries of link 14, five days before the link failed; all others zero."""
    (finding,) = judge(nvlink_errors, host(reading(counting(h100(0), 14, **counts))))

    assert (finding.verdict, finding.seen) == (verdict, seen)


def test_bit_error_rates_are_recorded_as_nvidia_smi_prints_them():
    """nvml.h: exponent in bits 0 to 7, mantissa in bits 8 to 11; 15e-255 is the healthy baseline."""
    (finding,) = judge(nvlink_errors, host(reading(counting(h100(0), recoveries=1, symbol_ber=0x30F))))

    assert finding.evidence == ("NVLink 0: 1 recovery, effective bit error rate 15e-255, symbol bit error rate 3e-15",)


def test_errors_have_a_number_and_a_noun():
    links = tuple(changed(link, replay_errors=0, recovery_errors=0, crc_errors=0) for link in h100(0).nvlinks)
    noisy = changed(h100(0), nvlinks=(changed(links[0], crc_errors=12000), *links[1:]))
    (finding,) = judge(nvlink_errors, host(reading(noisy)))

    assert finding.seen == "NVLink 0: 12,000 CRC errors"


@pytest.mark.parametrize("call", [STATE, "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS", "nvmlDeviceGetNvLinkErrorCounter"])
def test_counters_that_were_refused_are_unknown(call):
    (finding,) = judge(nvlink_errors, host(refused(h100(0), code=999, call=call)))

    assert finding.verdict is UNKNOWN


def test_gpu_without_nvlink_has_no_counters():
    nvml = changed(refused(p100(0), code=3), driver_version=DRIVER)
    (finding,) = judge(nvlink_errors, host(nvml))

    assert finding.verdict is SKIP
