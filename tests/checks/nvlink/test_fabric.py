"""The NVSwitch fabric: its state decides, a service that cannot be seen is unknown, and racks have switch trays."""

import pytest
from msgspec.structs import replace as changed

from gpucheck.checks.nvlink import fabric, imex
from gpucheck.checks.nvlink.fabric import is_tray_gpu
from gpucheck.model import DEFECT, Fabric, Health, NvmlGap, PackageVersion
from gpucheck.topology.wiring import FAR_END
from tests.checks.judging import FAIL, PASS, UNKNOWN, WARN, codes, judge
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


A100S = [changed(h100(n), fabric=None, device_id="20b2", name="NVIDIA A100-SXM4-80GB") for n in range(2)]
BARE = [changed(a, nvlinks=tuple(changed(link, remote_kind=None) for link in a.nvlinks)) for a in A100S]


def gap(gpu, code, call="nvmlDeviceGetGpuFabricInfoV", subject="gpu:{}"):
    return NvmlGap(call=call, subject=subject.format(gpu.pci_bus_id), code=code, name="NVMLError_X")


def a100s(**more):
    """A board without a fabric state, whose fabric manager is not visible."""
    return hgx(*more.pop("gpus", A100S), **{"service": None, "packages": (), **more})


def without_far_end(code):
    gaps = (gap(BARE[0], code, FAR_END[0], "link:{}/0"),)
    return a100s(gpus=BARE, gaps=gaps, container="docker", p2p=REFUSED, pci=())


def board(state, **more):
    return hgx(*h100s(Fabric(**state)), **more)


NO_CALL = tuple(gap(gpu, 13) for gpu in A100S)
STARTING, STOPPED, BAD = {"state": "in-progress"}, {"state": "not-started"}, {"state": "completed", "status": 999}
UNSEEN = {"service": None, "packages": ()}
# State Completed with Insufficient Resources, clique 0 and no cluster: Azure/azhpc-images#506.
NOT_REGISTERED = Fabric(state="completed", status=23, clique_id=0, cluster_uuid=ZERO)
# Four GB200 in state Not Supported, status Success, clique 0: leptonai/gpud#1108.
OUTSIDE = Fabric(state="not-supported", status=0, clique_id=0, cluster_uuid=ZERO, health_mask=0)


@pytest.mark.parametrize(
    ("host", "found"),
    [
        # The state decides; the service only explains it. None is PASS: of the state, then of a package.
        (board(STARTING, service="inactive"), ["nvlink.fabric-not-ready", None]),
        (board(BAD), ["nvlink.fabric-not-ready", None]),  # seen on real machines
        # The GPU Operator runs fabric manager in its driver container, a provider in a service VM.
        (hgx(*h100s(), **UNSEEN), [None, "nvlink.manager-elsewhere"]),
        (board(STARTING, **UNSEEN, container="docker"), ["nvlink.fabric-training-elsewhere"]),
        (board(STARTING, **UNSEEN, virtual="kvm"), ["nvlink.fabric-training-elsewhere"]),
        (board(STARTING, **UNSEEN), ["nvlink.fabric-not-ready"]),
        (board(STOPPED, **UNSEEN, container="docker"), ["nvlink.fabric-not-ready-elsewhere"]),
        (board(STOPPED, **UNSEEN, virtual="kvm"), ["nvlink.fabric-not-ready-elsewhere"]),
        # The switches of HGX B200 are no PCI devices.
        (hgx_b200(packages=(changed(MANAGER, version=f"1:{DRIVER}-1ubuntu1"),)), [None, None]),  # with an epoch
        (hgx_b200("not-started", service="failed"), ["nvlink.fabric-not-ready", None]),
        # Without a state: P2P over NVLink proves the fabric; a service out of sight is not down.
        (a100s(container="docker"), [None]),
        (a100s(systemd=False, gaps=NO_CALL), [None, "nvlink.manager-elsewhere"]),
        (a100s(p2p=REFUSED, container="docker"), ["nvlink.manager-not-in-guest"]),
        (a100s(p2p=REFUSED, virtual="kvm"), ["nvlink.manager-not-in-guest"]),
        (a100s(p2p=REFUSED, systemd=False), ["nvlink.manager-not-queried"]),
        (a100s(p2p=REFUSED, container="docker", pci=()), ["nvlink.manager-not-in-guest"]),
        (a100s(service="inactive", p2p=REFUSED), ["nvlink.manager-down"]),
        # Links whose far end was not reported prove no fabric.
        (without_far_end(13), ["nvlink.far-end-not-offered"]),
        (without_far_end(999), ["nvlink.far-end-unknown"]),
        (without_far_end(DEFECT), ["nvlink.far-end-unreadable"]),
        # No fabric manager runs on a compute tray of a rack.
        (tray(*gb200s(*[Fabric(state="in-progress")] * 2)), ["nvlink.tray-unregistered"]),
        (tray(*gb200s(NOT_REGISTERED, NOT_REGISTERED)), ["nvlink.tray-unregistered"]),
        (tray(*gb200s(OUTSIDE, OUTSIDE)), ["nvlink.tray-outside-fabric"]),
        # One among others that are registered: they pass, and it does not.
        (tray(*gb200s(READY, OUTSIDE)), [None, "nvlink.tray-outside-fabric"]),
        (hgx(h100s()[0], h100s(OUTSIDE)[1]), [None, None, "nvlink.gpus-outside-fabric"]),
        (hgx(h100s()[0], changed(h100s(OUTSIDE)[1], health=Health(mig=True))), [None, None]),
        (tray(*gb200s(READY, changed(READY, clique_id=7), READY)), [None, "nvlink.tray-fabric-divided"]),
    ],
)
def test_state_of_the_fabric(host, found):
    assert codes(fabric, host) == found


@pytest.mark.parametrize(
    ("service", "p2p", "confidence"),
    [("inactive", REFUSED, "certain"), ("failed", GRANTED, "likely"), (None, REFUSED, "likely")],
)
def test_service_that_was_seen_down_fails(service, p2p, confidence):
    """Certain only where the unit was seen inactive, and nothing shows that the fabric works."""
    finding = judge(fabric, hgx(*A100S, service=service, p2p=p2p))[0]

    assert (finding.verdict, finding.cause, finding.confidence) == (FAIL, "fabric-manager-down", confidence)


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


@pytest.mark.parametrize(("mask", "found"), [(HEALTHY, []), (0, []), (0xFAA, [(FAIL, "fabric-degraded")])])
def test_health_of_the_fabric_that_is_not_reported_or_has_no_name(mask, found):
    """0 is "not reported" (a healthy GB200, gpud#1106). Values with a name: tests/test_foreign_nvml.py."""
    passed, *others = judge(fabric, tray(*gb200s(changed(READY, health_mask=mask), READY)))

    assert passed.verdict is PASS
    assert [(f.verdict, f.cause) for f in others] == found
    assert all("code 15" in f.seen for f in others)


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


IMEX = PackageVersion(name="nvidia-imex", version=DRIVER)
ALONE = changed(READY, clique_id=0, cluster_uuid=ZERO)
UNKNOWN_MODEL = changed(h100(0), device_id="ffff", name="NVIDIA VR200", fabric=READY)


@pytest.mark.parametrize(
    ("host", "found"),
    [
        # Slurm and Kubernetes start it for each job, so only a failure is a FAIL.
        (rack("inactive"), ["nvlink.imex-stopped"]),
        (rack("activating"), ["nvlink.imex-starting"]),
        (rack(None), ["nvlink.imex-not-installed"]),
        (rack("failed"), ["nvlink.imex-failed"]),
        (rack("failed", gpus=[UNKNOWN_MODEL]), ["nvlink.imex-failed"]),  # a cluster is that of a rack
        (rack(nodes="# none yet\n", channels=()), ["nvlink.imex-without-nodes", "nvlink.imex-no-channel"]),
        # NVIDIA/cloud-native-docs#453: systemctl mask nvidia-imex.service, where ComputeDomains run it.
        (rack("inactive", files=[(imex.MASKS[0], "")]), ["nvlink.imex-masked"]),
        (rack(None, units={}), ["nvlink.imex-not-queried"]),
        (rack(None, container="docker"), ["nvlink.imex-not-queried"]),
        # Not outside a domain of several hosts; on a board in a cluster only if its package is installed.
        (rack("inactive", gpus=gb200s(ALONE, ALONE)), ["nvlink.domain-not-shared"]),
        (rack(None, gpus=h100s(ALONE)), ["nvlink.no-domain"]),
        (rack(None, gpus=[changed(h100(0), fabric=None)]), ["nvlink.no-domain"]),
        (rack(None, gpus=h100s(READY)), ["nvlink.no-domain"]),
        (rack(None, gpus=h100s(READY), packages=(IMEX,)), ["nvlink.imex-not-installed"]),
    ],
)
def test_imex(host, found):
    assert codes(imex, host) == found


def test_nodes_of_the_domain_are_counted_without_comments():
    (finding,) = judge(imex, rack(nodes="# all trays of the rack\n10.0.0.1\n\n10.0.0.2 # second\n"))

    assert finding.seen == "nvidia-imex active, 2 nodes configured"
