"""NVLink: what is off on purpose, what is down, and what could not be read are three things."""

import pytest
from msgspec.structs import replace as changed

from gpucheck.checks._case import Case
from gpucheck.checks._machine import Machine
from gpucheck.checks.nvlink import links as nvlink
from gpucheck.model import DEFECT, NvmlGap
from gpucheck.model.diagnosis.observations import NvLinkCount, Observations, ObservedGpu, ObservedHost
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, codes, judge
from tests.fakes import SYSTEM, facts
from tests.machines import h100, p100, reading

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
GUEST = (None, "kvm")


def missing(*gpus):
    """These GPUs, as NVML reports those that have no link."""
    return changed(reading(*gpus), gaps=refused(*(gpu for gpu in gpus if not gpu.nvlinks), code=3).gaps)


def six_links(*down):
    return tuple(changed(h100(0).nvlinks[n], active=n not in down) for n in range(6))


DARK = [with_links(h100(n), 0) for n in range(4)]
SHORT = with_links(h100(0), 17)
# Links in state 2; NCCL takes those in state 1 only.
AWAKE = tuple(changed(link, active=link.link != 2, state="active") for link in h100(0).nvlinks)
SLEEPY = changed(h100(0), nvlinks=(*AWAKE[:2], changed(AWAKE[2], state="asleep"), *AWAKE[3:]))
# 17 of 18 were read, and all of them are up.
PART = changed(h100(0), nvlinks=tuple(link for link in h100(0).nvlinks if link.link != 4))
# Azure/azhpc-diagnostics#73: GPU 3 of a guest with links 3 and 5 inactive.
V100S = [
    changed(h100(n), device_id="1db5", name="Tesla V100-SXM2-32GB", nvlinks=six_links(*((3, 5) if n == 3 else ())))
    for n in range(4)
]
# Azure/azhpc-images#443: a bridged model; such guests came up without links, and had them after a reboot.
BRIDGED = [changed(with_links(h100(n), 0, ports=12), device_id="2321", name="NVIDIA H100 NVL") for n in range(2)]
# An NVML that answers "disabled" for ports of an L40S: there is nothing to miss.
L40S = [changed(p100(n), device_id="26b9", name="NVIDIA L40S", nvlinks=DARK[0].nvlinks) for n in range(2)]
LIMITED = [with_links(h100(n), 12, ports=12) for n in range(2)]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        # What was not read is not missing; a lost GPU is the inventory's.
        (host(refused(NONE[0], code=4)), ["nvml.access-denied"]),
        (host(refused(NONE[0], code=999)), ["nvml.call-failed"]),
        (host(refused(NONE[0], code=DEFECT)), ["nvml.result-unreadable"]),
        *[(host(refused(NONE[0], code=code)), ["nvlink.state-not-offered"]) for code in (13, 26)],
        (host(refused(NONE[0], code=15)), ["nvml.gpu-lost"]),
        (host(changed(refused(PART, code=999, link=4), gpus=(PART, h100(1)))), ["nvml.call-failed", None]),
        # Providers switch NVLink off for guests with one GPU, and NVML then reports no link, or inactive ones.
        *[(host(refused(gpu, code=3), virtual), ["nvlink.one-gpu"]) for gpu in (NONE[0], DARK[0]) for virtual in GUEST],
        *[(host(refused(*NONE, code=3), virtual, OFF), ["nvlink.switched-off"]) for virtual in GUEST],
        (host(refused(*NONE, code=3), "kvm"), ["nvlink.guest-without-nvlink"] * 4),
        (host(refused(*DARK, code=3), "kvm"), ["nvlink.guest-without-active"] * 4),
        (host(reading(*BRIDGED), "microsoft"), ["nvlink.guest-without-active"] * 2),
        (host(reading(*BRIDGED)), ["nvlink.no-bridge"] * 2),
        (host(reading(*L40S)), ["nvlink.no-nvlink"]),
        # On bare metal; certain needs ports that NVML reports inactive.
        (host(missing(*NONE)), ["nvlink.none-listed"] * 4),
        (host(missing(NONE[0], h100(1))), ["nvlink.none-listed", None]),
        (host(reading(*DARK[:2])), ["nvlink.none-active"] * 2),
        (host(reading(DARK[0], h100(1))), ["nvlink.none-active", None]),
        (host(reading(LIMITED[0], h100(1))), ["topology.nvlinks-not-listed", None]),
        (host(reading(*V100S), "microsoft"), [None, None, None, "topology.nvlinks-inactive"]),
        # NVreg_RmNvlinkBandwidthLinkCount, as the driver's params list it.
        (host(reading(*LIMITED), params=f"{ON}RmNvlinkBandwidthLinkCount: 12\n"), [None, None]),
        (host(reading(SLEEPY, h100(1))), ["nvlink.links-asleep", None]),
    ],
)
def test_state_of_the_links(host, found):
    assert codes(nvlink, host) == found


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


def test_a_guest_whose_links_are_all_inactive_is_not_known_to_be_healthy():
    """They may be off by intent, or not set up: the finding says both, so it is no SKIP."""
    found = judge(nvlink, host(refused(*DARK, code=3), "kvm"))

    assert {one.verdict for one in found} == {UNKNOWN}


def test_inactive_link_of_a_guest_is_certain_where_a_peer_has_all_its_links():
    """Otherwise the hypervisor may have kept some."""
    alone = judge(nvlink, host(reading(SHORT, SHORT), "kvm"))[0]
    with_peer = judge(nvlink, host(reading(SHORT, h100(1)), "kvm"))[0]

    assert [(f.verdict, f.confidence) for f in (alone, with_peer)] == [(FAIL, "likely"), (FAIL, "certain")]
    assert with_peer.evidence == ("nvmlDeviceGetNvLinkState: 17 of 18 ports active, inactive: 17",)


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA Unlisted"])
@pytest.mark.parametrize("virtual", [None, "kvm"])
@pytest.mark.parametrize("up", [(18, 17), (12, 12), (18, 0), (0, 0)])
def test_counts_that_a_tool_printed_are_decided_as_the_ports_of_nvml(name, virtual, up):
    """Two GPUs with 18 ports each; a board of an unknown product has what it has."""
    gpus = [changed(with_links(h100(n), links), name=name, device_id="ffff") for n, links in enumerate(up)]
    counted = [ObservedGpu(model=name, nvlinks=NvLinkCount(active=links, total=18)) for links in up]
    seen = Observations(gpus=tuple(counted), host=ObservedHost(virtual=bool(virtual)))

    both = [*nvlink.rule(Case(Machine(seen)))], judge(nvlink, host(reading(*gpus), virtual))
    problems = [[(f.verdict, f.cause, f.confidence) for f in one if f.verdict not in (PASS, SKIP)] for one in both]
    assert problems[0] == problems[1]
