"""Sessions with some of the GPUs of a host: what is hidden is not lost, and what is lost is still found."""

import pytest
from msgspec.structs import replace

from gpucheck.checks._session import allotted, judged
from gpucheck.checks._session import session as share_of
from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.knowledge.systems import DMI
from gpucheck.model import DeviceFile, Finding, NvmlFailure, NvmlGap, PciDevice
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, codes, judge, with_health
from tests.fakes import SYSTEM, facts
from tests.machines import LOADED, h100, on_bus, p100, reading

ALL = tuple(p100(index) for index in range(4))
# The number of a device file is not NVML's index: here they count in opposite directions.
MINOR = {gpu.pci_bus_id: 3 - index for index, gpu in enumerate(ALL)}
NO_PERMISSION, LOST = 4, 15


def session(*listed, errors=None, container=None, gaps=(), **environment):
    """A host of four GPUs whose NVML lists these. errors: of the device files by number."""
    files = [
        DeviceFile(name=f"nvidia{minor}", bus_id=bus_id, error=(errors or {}).get(minor))
        for bus_id, minor in MINOR.items()
    ]
    gpus = [replace(ALL[place], index=index) for index, place in enumerate(listed)]
    return facts(
        nvml=replace(reading(*gpus), gaps=tuple(gaps)),
        pci=on_bus(*ALL),
        driver=LOADED,
        folders={"/dev": ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm")},
        device_files=(DeviceFile(name="nvidiactl"), *files),
        system=replace(SYSTEM, container=container),
        environment=environment,
    )


def refused(index, code):
    return NvmlGap(call="nvmlDeviceGetHandleByIndex", subject=f"gpu index {index}", code=code, name="NVMLError")


def divided(**environment):
    host = session(0, 1, 2, 3, **environment)
    return replace(host, nvml=reading(*(with_health(gpu, mig=True) for gpu in ALL)))


HIDDEN = {3: "EPERM", 1: "EPERM"}


@pytest.mark.parametrize(
    "host",
    [
        session(1, 3, errors=HIDDEN),
        session(1, 3, errors=HIDDEN, gaps=(refused(0, NO_PERMISSION), refused(2, NO_PERMISSION))),
        session(1, 3, errors=HIDDEN, SLURM_JOB_ID="7", SLURM_STEP_GPUS="0,2", SLURM_GPUS_ON_NODE="2"),
        session(1, 3, errors=HIDDEN, container="docker"),
    ],
    ids=["omitted", "counted", "slurm", "container"],
)
def test_hidden_gpus_are_one_skip_with_the_numbers_of_the_device_files(host):
    """Both ways of NVML: it omits what it may not open, or counts it and denies the handle."""
    passed, skipped = judge(inventory, host)

    assert (passed.verdict, passed.seen) == (PASS, "2 x Tesla P100-PCIE-16GB")
    assert (skipped.verdict, skipped.subject) == (SKIP, "host")
    assert skipped.code == "session.some-gpus-hidden"
    assert skipped.values == {"usable": ("/dev/nvidia2", "/dev/nvidia0"), "count": 2, "total": 4}
    assert skipped.evidence == ("/dev/nvidia3 (0000:03:00.0): EPERM", "/dev/nvidia1 (0000:05:00.0): EPERM")
    share = share_of(host)
    assert (share.usable, share.hidden) == (("0000:04:00.0", "0000:06:00.0"), ("0000:03:00.0", "0000:05:00.0"))


GONE = {"errors": {3: "ENOENT", 1: "ENOENT"}, "container": "docker"}
HIDDEN_AND_LOST = (refused(0, NO_PERMISSION), refused(1, LOST), refused(2, NO_PERMISSION))


@pytest.mark.parametrize(
    ("host", "found"),
    [
        # A GPU of the session that is gone is found, whatever the cgroup hides, also in a running container.
        *[
            (session(3, errors={**HIDDEN, 2: error}), ["gpu.not-initialized", "session.some-gpus-hidden"])
            for error in ("ENXIO", "EIO", "ENODEV")
        ],
        (session(3, errors={**HIDDEN, 2: "EIO"}, gaps=HIDDEN_AND_LOST), ["gpu.not-opened", "session.some-gpus-hidden"]),
        (
            session(3, errors={3: "ENOENT", 1: "ENOENT", 2: "EIO"}, container="docker"),
            ["gpu.not-initialized", "session.container-with-some-gpus"],
        ),
        # Opened and not listed, no answer, no file, and a file that this user may not open are four other things.
        (session(0, 1, 2, errors={0: None}), ["gpu.not-initialized"]),
        (session(0, 1, 2, errors={0: "ETIMEDOUT"}), ["gpu.not-initialized"]),
        (session(0, 1, 2, errors={0: "ENOENT"}), ["gpu.device-file-missing"]),
        (session(0, 1, 2, errors={0: "EACCES"}), ["gpu.device-file-denied"]),
        # Slurm may allot more than the node has; it numbers MIG devices in its own way.
        (session(0, 1, 2, 3, SLURM_GPUS_ON_NODE="4"), [None]),
        (session(0, 1, 2, 3, SLURM_GPUS_ON_NODE="5"), ["gpu.fewer-than-allotted"]),
        (session(0, 1, 2, 3, SLURM_STEP_GPUS="9", SLURM_GPUS_ON_NODE="28"), ["gpu.allotted-gpu-gone"]),
        (divided(SLURM_STEP_GPUS="9", SLURM_GPUS_ON_NODE="28"), [None]),
        # A container has what was requested: the toolkit adds what NVML lists when the container starts.
        (session(1, 3, **GONE), [None, "session.container-with-some-gpus"]),
        (session(1, 3, **GONE, NVIDIA_VISIBLE_DEVICES="0,1"), [None, "session.container-with-some-gpus"]),
        (session(1, 3, **GONE, NVIDIA_VISIBLE_DEVICES="void"), [None, "session.container-with-some-gpus"]),
        (
            session(1, 3, **GONE, NVIDIA_VISIBLE_DEVICES="all", SLURM_JOB_ID="7"),
            [None, "session.container-with-some-gpus"],
        ),
        (session(1, 3, **GONE, NVIDIA_VISIBLE_DEVICES="0,1,2"), [None, "session.fewer-than-requested"]),
        (session(1, 3, **GONE, NVIDIA_VISIBLE_DEVICES="all"), [None, "session.fewer-than-requested"]),
    ],
)
def test_gpus_of_a_session(host, found):
    assert codes(inventory, host) == found


def test_the_error_of_its_device_file_shows_that_a_gpu_is_gone():
    lost, _ = judge(inventory, session(3, errors={**HIDDEN, 2: "ENXIO"}, SLURM_STEP_GPUS="0,2"))

    assert (lost.subject, lost.confidence) == ("gpu:0000:04:00.0", "certain")
    assert lost.evidence[1] == "/dev/nvidia2: ENXIO"


def test_a_gpu_of_slurm_that_left_the_bus_is_found():
    """SLURM_STEP_GPUS names it; its file remains, and no driver is behind it."""
    host = session(0, 1, 2, SLURM_STEP_GPUS="0,1")
    left = tuple(device for device in host.pci if device.bus_id != "0000:06:00.0")
    files = tuple(file for file in host.device_files if file.minor != 0)
    for rest in ((), (DeviceFile(name="nvidia0", error="ENODEV"),)):
        (finding,) = judge(inventory, replace(host, pci=left, device_files=(*files, *rest)))

        assert (finding.verdict, finding.cause, finding.seen) == (FAIL, "gpu-lost", "GPU of /dev/nvidia0 gone")
        assert "SLURM_STEP_GPUS=0,1" in finding.evidence


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_GPUS": "2,5", "SLURM_JOB_GPUS": "0,1"}, {2, 5}),
        ({"SLURM_STEP_ID": "0", "SLURM_JOB_GPUS": "0,1"}, set()),  # those of the first node of the job
        ({"SLURM_JOB_GPUS": "0-2,7"}, {0, 1, 2, 7}),
        ({"SLURM_JOB_GPUS": "a100:2,-1,,0-"}, {0}),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, set()),  # numbers of the session, not of the node
    ],
)
def test_what_slurm_allotted(environment, numbers):
    assert allotted(environment) == numbers


def test_a_session_without_a_gpu_is_told_why_and_how_to_leave():
    host = session(errors=dict.fromkeys(range(4), "EPERM"))
    (finding,) = judge(inventory, host)

    assert (finding.verdict, finding.seen, finding.cause) == (UNKNOWN, "0 GPUs", None)
    assert (finding.code, finding.values) == ("session.all-gpus-hidden", {"total": 4})
    assert share_of(host).usable == ()


@pytest.mark.parametrize("code", [4, 9, 999])
def test_a_cgroup_that_hides_the_driver_is_not_a_broken_driver(code):
    """NVML_ERROR_UNKNOWN is what containers get whose device rules a reload of systemd has reset."""
    failure = NvmlFailure(call="nvmlInit", code=code, name="NVMLError")
    host = replace(session(), nvml=failure, device_files=(DeviceFile(name="nvidiactl", error="EPERM"),))
    (finding,) = judge(driver, host)

    assert (finding.verdict, finding.cause, finding.code) == (UNKNOWN, None, "software.control-device-denied")
    assert len(share_of(host).hidden) == 4
    in_container = replace(host, system=replace(SYSTEM, container="docker"))
    assert judge(driver, in_container)[0].code == "software.control-device-denied-in-container"


def test_a_cgroup_explains_no_other_failure_of_the_driver():
    failure = NvmlFailure(call="nvmlInit", code=18, name="NVMLError_LibRmVersionMismatch")
    host = replace(session(), nvml=failure, device_files=(DeviceFile(name="nvidiactl", error="EPERM"),))

    assert judge(driver, host)[0].cause == "driver-mismatch"


def test_cuda_without_its_device_file_is_no_pass():
    host = session(0, 1, 2, 3)
    denied = replace(host, device_files=(*host.device_files, DeviceFile(name="nvidia-uvm", error="EPERM")))

    assert codes("device-nodes", host) == [None]
    assert codes("device-nodes", denied) == ["host.device-file-denied"]


def finding(subject, verdict=FAIL):
    return Finding(
        check="kernel-log", verdict=verdict, subject=subject, seen="Xid 79", cause="gpu-lost", why="It fell.", fix="x"
    )


def test_findings_about_hidden_gpus_are_the_nodes():
    share = share_of(session(1, 3, errors=HIDDEN))
    ports = {"a": ("0000:03:00.0",), "both": ("0000:03:00.0", "0000:04:00.0")}
    pci = tuple(
        PciDevice(
            bus_id=gpu.pci_bus_id,
            vendor_id="10de",
            device_id="15f8",
            class_id="030200",
            path=tuple(f"0000:0{8 + n}:00.0" for n, below in enumerate(ports.values()) if gpu.pci_bus_id in below),
        )
        for gpu in ALL
    )
    subjects = ["gpu:0000:03:00.0", "link:0000:08:00.0", "pair:0000:03:00.0-0000:04:00.0"]
    for one in judged(map(finding, subjects), share, pci):
        assert (one.verdict, one.cause, one.seen) == (SKIP, None, "Xid 79")
        assert one.values == {"by": "device-cgroup", "on_the_node": "FAIL", "found": "gpu-lost"}
    own = [*map(finding, ["gpu:0000:04:00.0", "link:0000:09:00.0", "host"]), finding("gpu:0000:03:00.0", SKIP)]
    assert judged(own, share, pci) == tuple(own)


@pytest.mark.parametrize(
    ("vendor", "product", "gpus", "code"),
    [
        ("NVIDIA", "DGXH100", 7, "gpu.fewer-than-built"),
        ("NVIDIA", "DGXH100", 8, None),
        ("Amazon EC2", "p5.48xlarge", 7, "gpu.fewer-than-built"),
        ("Amazon EC2", "p5.4xlarge", 1, "gpu.count-not-known"),
        ("NVIDIA", "GB200 NVL", 2, "gpu.count-not-known"),  # there are trays with fewer
        ("Supermicro", "SYS-821GE-TNHR", 7, "gpu.count-not-known"),
        ("", "", 7, "gpu.count-not-known"),
    ],
)
def test_a_gpu_that_is_gone_from_the_bus_is_missed_where_the_system_is_known(vendor, product, gpus, code):
    """NVML and the PCI bus agree then: a GPU that did not come up at boot is on neither."""
    files = {f"{DMI}sys_vendor": vendor, f"{DMI}product_name": product}
    these = [h100(index) for index in range(gpus)]
    host = facts(nvml=reading(*these), pci=on_bus(*these), driver=LOADED, files=files)

    assert codes("gpu-count", host) == [code]
