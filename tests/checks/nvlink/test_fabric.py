"""The NVSwitch fabric: its state decides, a service that cannot be seen is unknown, and racks have switch trays."""

import pytest
from msgspec.structs import replace as changed

from gpucheck.checks.nvlink import fabric, imex
from gpucheck.checks.nvlink._fabric_health import is_tray_gpu
from gpucheck.checks.p2p import status as p2p_status
from gpucheck.model import DEFECT, Fabric, NvmlGap, PackageVersion
from gpucheck.topology.view import FAR_END
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import DRIVER, h100, nvswitches, on_bus, reading

UUID = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
ZERO = "00000000-0000-0000-0000-000000000000"
READY = Fabric(state="completed", status=0, clique_id=4026, cluster_uuid=UUID, health_mask=0)
HEALTHY = 0x1AA
UNITS = ("nvidia-fabricmanager", "nvidia-imex")
NO_UNITS = dict.fromkeys(UNITS, "not-found")
REFUSED, GRANTED = (("X", "NS"), ("NS", "X")), (("X", "OK"), ("OK", "X"))


MANAGER = PackageVersion(name="nvidia-fabricmanager", version=f"{DRIVER}-1", held=True)


def hgx(*gpus, service="active", systemd=True, packages=(MANAGER,), p2p=GRANTED, gaps=(), pci=None, **system):
    """A board with four visible NVSwitches. service: of fabric manager, None for no unit."""
    return facts(
        nvml=changed(reading(*gpus), p2p={"read": p2p, "write": p2p, "nvlink": p2p}, gaps=gaps),
        pci=on_bus(*gpus) + nvswitches(4) if pci is None else pci,
        services=(NO_UNITS if systemd else {}) | ({"nvidia-fabricmanager": service} if service else {}),
        packages=packages,
        system=changed(SYSTEM, **system),
    )


def h100s(state=None):
    return [changed(h100(n), fabric=state or changed(READY, clique_id=0, cluster_uuid=ZERO)) for n in range(2)]


def gb200s(*states):
    return [
        changed(h100(n), device_id="2941", name="NVIDIA GB200", compute_capability="10.0", fabric=state)
        for n, state in enumerate(states)
    ]


def tray(*gpus):
    return facts(nvml=reading(*gpus), pci=on_bus(*gpus), services=NO_UNITS)


NVLSM = PackageVersion(name="nvlsm", version="2025.10.11-1")


def hgx_b200(state="completed", packages=(MANAGER, NVLSM), **more):
    """A board whose switches are no PCI devices."""
    gpus = [
        changed(h100(n), device_id="2901", name="NVIDIA B200", fabric=Fabric(state=state, status=0, cluster_uuid=ZERO))
        for n in range(2)
    ]
    return hgx(*gpus, pci=on_bus(*gpus), packages=packages, **more)


def test_fabric_manager_of_a_board_without_visible_switches_is_compared_with_the_driver():
    state, manager = judge(fabric, hgx_b200())

    assert (state.verdict, state.seen) == (PASS, "2 of 2 GPUs registered")
    assert (manager.verdict, manager.seen) == (PASS, f"nvidia-fabricmanager {DRIVER}-1")
    old = PackageVersion(name="nvidia-fabricmanager", version="570.1.1-1")
    found = judge(fabric, hgx_b200(packages=(old,)))
    assert (FAIL, "fabric-version-mismatch") in [(f.verdict, f.cause) for f in found]


@pytest.mark.parametrize(
    ("packages", "cause"), [((MANAGER,), "nvlsm-missing"), ((MANAGER, NVLSM), "fabric-manager-down")]
)
def test_a_fabric_that_is_not_up_for_want_of_its_subnet_manager(packages, cause):
    finding, *_ = judge(fabric, hgx_b200("not-started", packages, service="failed"))

    assert (finding.verdict, finding.cause) == (FAIL, cause)


@pytest.mark.parametrize(("state", "needs"), [("completed", ()), ("not-started", ("package:nvlsm",))])
def test_the_subnet_manager_is_looked_for_only_where_it_decides(state, needs):
    """So a recording without it is evaluated as long as the board is ready."""
    assert fabric.more(hgx_b200(state)) == needs


def test_a_lost_gpu_is_not_among_those_that_are_registered():
    gpus = h100s()
    gone = NvmlGap(call="nvmlDeviceGetPowerUsage", subject=f"gpu:{gpus[1].pci_bus_id}", code=15, name="NVMLError_X")
    found = judge(fabric, hgx(*gpus, gaps=(gone,)))

    assert next(f.seen for f in found if f.verdict is PASS) == "1 of 1 GPUs registered"
    (lost,) = (f for f in found if f.subject == f"gpu:{gpus[1].pci_bus_id}")
    assert (lost.verdict, lost.because_of) == (UNKNOWN, "inventory")


@pytest.mark.parametrize(
    ("name", "device_id", "cluster", "tray"),
    [
        ("NVIDIA GB200", "ffff", ZERO, True),
        ("NVIDIA GB200", "2901", ZERO, True),  # the id of a B200, as NVIDIA's mock has it
        ("NVIDIA B200", "2901", ZERO, False),
        ("NVIDIA B200", "2901", UUID, False),
        ("a GPU to come", "2941", ZERO, True),
        ("a GPU to come", "2901", UUID, True),
        ("a GPU to come", "2901", ZERO, False),
    ],
)
def test_the_name_counts_before_the_cluster_and_the_cluster_before_the_id(name, device_id, cluster, tray):
    gpu = changed(h100(0), name=name, device_id=device_id, fabric=changed(READY, cluster_uuid=cluster))

    assert is_tray_gpu(gpu) is tray


@pytest.mark.parametrize(
    ("summary", "verdict"), [("healthy", None), (None, None), ("unhealthy", FAIL), ("limited-capacity", WARN)]
)
def test_the_summary_counts_where_the_mask_shows_nothing(summary, verdict):
    state = changed(READY, clique_id=0, cluster_uuid=ZERO, health_summary=summary)
    found = [f for f in judge(fabric, hgx(*h100s(state))) if f.subject.startswith("gpu:")]

    assert {(f.verdict, f.cause) for f in found} == ({(verdict, "fabric-degraded")} if verdict else set())


A100S = [changed(h100(n), fabric=None, device_id="20b2", name="NVIDIA A100-SXM4-80GB") for n in range(2)]
NO_CALL = tuple(
    NvmlGap(call="nvmlDeviceGetGpuFabricInfoV", subject=f"gpu:{gpu.pci_bus_id}", code=13, name="NVMLError_X")
    for gpu in A100S
)


@pytest.mark.parametrize("where", [{"container": "docker"}, {"systemd": False}], ids=["container", "no-systemd"])
@pytest.mark.parametrize("gaps", [(), NO_CALL], ids=["before-hopper", "driver-535"])
def test_fabric_manager_out_of_sight_is_not_down(where, gaps):
    """HGX A100 in a container: P2P status over NVLink proves that the fabric works."""
    finding, *others = judge(fabric, hgx(*A100S, service=None, packages=(), gaps=gaps, **where))

    assert finding.verdict is PASS
    assert {f.verdict for f in others} <= {SKIP}
    assert finding.seen == "P2P status over NVLink OK for 1 of 1 pairs"


@pytest.mark.parametrize("where", [{"container": "docker"}, {"systemd": False}, {"virtual": "kvm"}], ids=str)
def test_paths_that_are_missing_under_a_service_out_of_sight_are_unknown(where):
    """The missing paths are the finding of p2p-status."""
    host = hgx(*A100S, service=None, packages=(), p2p=REFUSED, **where)
    (finding,) = judge(fabric, host)

    assert (finding.verdict, finding.because_of, finding.cause) == (UNKNOWN, "p2p-status", None)
    assert (FAIL, "fabric-manager-down") in [(f.verdict, f.cause) for f in judge(p2p_status, host)]


@pytest.mark.parametrize(
    ("service", "p2p", "confidence"),
    [("inactive", REFUSED, "certain"), ("failed", GRANTED, "likely"), (None, REFUSED, "likely")],
)
def test_service_that_was_seen_down_fails(service, p2p, confidence):
    """Certain only where the unit was seen inactive, and nothing shows that the fabric works."""
    finding = judge(fabric, hgx(*A100S, service=service, p2p=p2p))[0]

    assert (finding.verdict, finding.cause, finding.confidence) == (FAIL, "fabric-manager-down", confidence)


@pytest.mark.parametrize(
    ("state", "service", "verdict", "cause"),
    [
        (Fabric(state="not-started"), "inactive", FAIL, "fabric-manager-down"),
        (Fabric(state="in-progress"), "inactive", FAIL, "fabric-manager-down"),
        (Fabric(state="in-progress"), "active", WARN, None),
        (Fabric(state="completed", status=999), "active", FAIL, "fabric-manager-down"),
    ],
)
def test_only_completed_with_success_is_a_ready_fabric(state, service, verdict, cause):
    """State 3 with a bad status has been seen on real machines."""
    finding, manager = judge(fabric, hgx(*h100s(state), service=service))

    assert (finding.verdict, finding.cause, manager.verdict) == (verdict, cause, PASS)


def test_registered_gpus_need_no_package_in_sight():
    """The GPU Operator runs fabric manager in its driver container, a provider in a service VM."""
    state, manager = judge(fabric, hgx(*h100s(), service=None, packages=()))

    assert (state.verdict, manager.verdict) == (PASS, SKIP)


@pytest.mark.parametrize(
    ("state", "where", "verdict", "confidence"),
    [
        ("in-progress", {"container": "docker"}, WARN, None),
        ("in-progress", {"virtual": "kvm"}, WARN, None),
        ("in-progress", {}, FAIL, "likely"),
        ("not-started", {"container": "docker"}, FAIL, "likely"),
        ("not-started", {"virtual": "kvm"}, FAIL, "likely"),
    ],
)
def test_state_decides_where_no_service_can_be_seen(state, where, verdict, confidence):
    """A guest's fabric manager runs on its host."""
    finding = judge(fabric, hgx(*h100s(Fabric(state=state)), service=None, packages=(), **where))[0]

    assert (finding.verdict, finding.confidence) == (verdict, confidence)
    assert (finding.code or "").endswith("-elsewhere") is bool(where)


def test_status_of_a_failed_registration_is_named():
    """Azure/azhpc-images#506: Completed with Insufficient Resources, clique 0 and no cluster."""
    bad = Fabric(state="completed", status=23, clique_id=0, cluster_uuid=ZERO)
    (finding,) = judge(fabric, tray(*gb200s(bad, bad)))

    assert (finding.verdict, finding.cause) == (FAIL, "fabric-unregistered")
    assert "completed with status insufficient resources (NVML code 23)" in finding.evidence[0]


@pytest.mark.parametrize("code", [4, 15, 999])
def test_gpu_whose_state_was_refused_is_an_unread_member(code):
    """Not a GPU without a fabric: 7 of 7 would be a pass."""
    gpus = [changed(h100s()[0], fabric=None), h100s()[1]]
    gap = NvmlGap(
        call="nvmlDeviceGetGpuFabricInfoV", subject=f"gpu:{gpus[0].pci_bus_id}", code=code, name="NVMLError_Unknown"
    )
    unread, *_ = judge(fabric, hgx(*gpus, gaps=(gap,)))

    assert (unread.verdict, unread.subject) == (UNKNOWN, f"gpu:{gpus[0].pci_bus_id}")
    assert unread.because_of == ("inventory" if code == 15 else None)


def test_links_to_switches_are_a_fabric_without_any_pci_bus():
    """A container without /sys: the NVLinks of each A100 lead to a switch."""
    (finding,) = judge(fabric, hgx(*A100S, service=None, packages=(), container="docker", p2p=REFUSED, pci=()))

    assert finding.verdict is UNKNOWN


@pytest.mark.parametrize(
    ("refusal", "verdict", "code"),
    [
        (13, SKIP, "nvlink.far-end-not-offered"),
        (999, UNKNOWN, "nvlink.far-end-unknown"),
        (DEFECT, UNKNOWN, "nvlink.far-end-unreadable"),
    ],
)
def test_links_whose_far_end_was_not_reported_prove_no_fabric(refusal, verdict, code):
    bare = [changed(a, nvlinks=tuple(changed(link, remote_kind=None) for link in a.nvlinks)) for a in A100S]
    gap = NvmlGap(call=FAR_END[0], subject=f"link:{bare[0].pci_bus_id}/0", code=refusal, name="NVMLError_Unknown")
    board = hgx(*bare, service=None, packages=(), container="docker", p2p=REFUSED, gaps=(gap,), pci=())
    (finding,) = judge(fabric, board)

    assert (finding.verdict, finding.code) == (verdict, code)


@pytest.mark.parametrize(
    ("mask", "verdict", "cause", "words"),
    [
        (HEALTHY, None, None, ""),
        (0, None, None, ""),
        (HEALTHY - 1, WARN, "fabric-degraded", "degraded bandwidth"),
        (0x1A6, WARN, "fabric-degraded", "route recovery in progress"),
        (0x16A, WARN, "fabric-degraded", "access timeout recovery in progress"),
        (0x19A, FAIL, "fabric-degraded", "route unhealthy"),
        (0x5AA, FAIL, "nvlink-down", "insufficient NVLinks"),
        (0x4AA, FAIL, "fabric-degraded", "no partition"),
        (0x2AA, FAIL, "fabric-degraded", "incorrect system GUID"),
        (0xFAA, FAIL, "fabric-degraded", "code 15"),
    ],
)
def test_health_of_the_fabric_is_judged(mask, verdict, cause, words):
    """0x1A6 and 0x16A are test values of NVIDIA DCGM; 0 is "not reported" throughout (a healthy GB200, gpud#1106)."""
    gpus = gb200s(changed(READY, health_mask=mask), READY)
    found = judge(fabric, tray(*gpus))

    assert found[0].verdict is PASS
    assert [(f.verdict, f.cause, f.subject) for f in found[1:]] == (
        [(verdict, cause, f"gpu:{gpus[0].pci_bus_id}")] if verdict else []
    )
    assert all(words in f.seen for f in found[1:])


def test_gpus_in_different_cliques_cannot_reach_each_other():
    found = judge(fabric, tray(*gb200s(READY, changed(READY, clique_id=7), READY)))

    assert [f.verdict for f in found] == [PASS, WARN]
    assert found[1].seen == "GPUs in clique 4026 (2 GPUs), clique 7 (1 GPU)"


@pytest.mark.parametrize("state", ["in-progress", "not-started"])
def test_tray_of_a_rack_is_sent_to_its_switch_trays(state):
    """No fabric manager runs on a compute tray."""
    (finding,) = judge(fabric, tray(*gb200s(Fabric(state=state), Fabric(state=state))))

    assert (finding.verdict, finding.code) == (FAIL, "nvlink.tray-unregistered")
    assert not [line for line in finding.evidence if "fabricmanager" in line]


def test_tray_that_reports_no_fabric_at_all():
    """leptonai/gpud#1108: four GB200 in state Not Supported, status Success, clique 0."""
    none = Fabric(state="not-supported", status=0, clique_id=0, cluster_uuid=ZERO, health_mask=0)
    (finding,) = judge(fabric, tray(*gb200s(none, none, none, none)))

    assert (finding.verdict, finding.cause, finding.seen) == (WARN, "fabric-unregistered", "0 of 4 GPUs registered")


TWO = "10.0.0.1\n10.0.0.2\n"


def rack(service="active", *, nodes=TWO, channels=("channel0",), gpus=(), files=(), units=None, packages=(), **system):
    return facts(
        nvml=reading(*(gpus or gb200s(READY, READY))),
        services=NO_UNITS | ({"nvidia-imex": service} if service else {}) if units is None else units,
        files={imex.NODES: nodes, **dict(files)},
        folders={imex.CHANNELS: channels},
        packages=packages,
        system=changed(SYSTEM, **system),
    )


@pytest.mark.parametrize("nodes", ["# all trays of the rack\n10.0.0.1\n\n10.0.0.2 # second\n", TWO])
def test_imex_that_runs_passes(nodes):
    (finding,) = judge(imex, rack(nodes=nodes))

    assert (finding.verdict, finding.seen) == (PASS, "nvidia-imex active, 2 nodes configured")


@pytest.mark.parametrize(
    ("service", "verdict", "confidence"),
    [("inactive", WARN, "likely"), ("activating", WARN, "likely"), (None, WARN, "likely"), ("failed", FAIL, "certain")],
)
def test_imex_that_does_not_run_is_named(service, verdict, confidence):
    """Slurm and Kubernetes start it for each job, so that only a failure is certain."""
    (finding,) = judge(imex, rack(service))

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, "imex-down", confidence)


def test_imex_is_not_needed_outside_a_domain_of_several_hosts():
    alone = Fabric(state="completed", status=0, clique_id=0, cluster_uuid=ZERO, health_mask=0)
    (finding,) = judge(imex, rack("inactive", gpus=gb200s(alone, alone)))

    assert finding.verdict is SKIP


def test_imex_without_nodes_or_channels_is_a_warning():
    empty, channel = judge(imex, rack(nodes="# none yet\n", channels=()))

    assert [(f.verdict, f.cause) for f in (empty, channel)] == [(WARN, "imex-down")] * 2
    assert "no node listed" in empty.seen
    assert channel.code == "nvlink.imex-no-channel"


def test_imex_that_is_masked_is_run_by_kubernetes():
    """NVIDIA/cloud-native-docs#453: systemctl mask nvidia-imex.service, where ComputeDomains run it."""
    (finding,) = judge(imex, rack("inactive", files=[(imex.MASKS[0], "")]))

    assert (finding.verdict, finding.code) == (SKIP, "nvlink.imex-masked")


@pytest.mark.parametrize("more", [{"units": {}}, {"units": {}, "container": "docker"}, {"container": "docker"}])
def test_imex_is_not_missing_where_systemd_cannot_be_asked(more):
    (finding,) = judge(imex, rack(None, **more))

    assert (finding.verdict, finding.code) == (SKIP, "nvlink.imex-not-queried")


@pytest.mark.parametrize("state", [changed(READY, cluster_uuid=ZERO), None])
def test_imex_is_for_racks(state):
    """An HGX board has no other hosts in its fabric."""
    (finding,) = judge(imex, rack(None, gpus=[changed(h100(0), fabric=state)]))

    assert finding.verdict is SKIP


IMEX = PackageVersion(name="nvidia-imex", version=DRIVER)


@pytest.mark.parametrize(("packages", "verdict"), [((), SKIP), ((IMEX,), WARN)])
def test_board_in_a_cluster_needs_imex_if_its_package_is_installed(packages, verdict):
    (finding,) = judge(imex, rack(None, gpus=h100s(READY), packages=packages))

    assert finding.verdict is verdict


def test_unknown_model_in_a_cluster_belongs_to_a_rack():
    new = changed(h100(0), device_id="ffff", name="NVIDIA VR200", fabric=READY)
    (finding,) = judge(imex, rack("failed", gpus=[new]))

    assert finding.verdict is FAIL
