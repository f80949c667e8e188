"""What an image says of itself: whole or changed, and who keeps the GPU from it."""

import ctypes.util
import os
import shutil
import subprocess
import sys

import pytest
from msgspec.structs import replace

from gpucheck.images import judge, probe, selfreport
from gpucheck.images.judge import evaluate
from gpucheck.images.selfreport import Rights, SelfReport
from gpucheck.model import CRASHED, DEFECT, EXIT_STATUS, LATE, NOT_STARTED, DriverState, Limits, NvmlFailure, Verdict
from gpucheck.model import worst as worst_of
from tests.images.inside import CPU, CPU_IMAGE, NO_LIBCUDA, ON_A_LAPTOP, ON_P100, OWN, P100_ON_BUS, WITHOUT_GPUS, on
from tests.machines import h100, p100, reading


def found(values, *, quick=False):
    return list(evaluate(values, quick=quick))


def the_one(values, verdict):
    (finding,) = [f for f in found(values) if f.verdict is verdict]
    return finding


def status(values):
    return EXIT_STATUS[worst_of(f.verdict for f in found(values))]


def library(part, **changes):
    return on(ON_P100, {"libraries": {**OWN.libraries, part: replace(OWN.libraries[part], **changes)}})


def test_a_whole_image_with_gpus_passes_everything():
    assert {f.verdict for f in found(ON_P100)} == {Verdict.PASS}
    assert status(ON_P100) == 0


def test_a_cpu_image_passes_without_a_gpu():
    assert status(CPU_IMAGE) == 0
    assert any("CPU build" in line for f in found(CPU_IMAGE) for line in f.evidence)


def test_a_quick_look_at_a_cpu_image_is_healthy():
    """Two SKIPs and nothing to count were UNKNOWN: exit 3, and Docker called every CPU container unhealthy."""
    assert EXIT_STATUS[worst_of(f.verdict for f in found(CPU_IMAGE, quick=True))] == 0


def test_a_cpu_image_on_a_gpu_host_says_that_it_cannot_use_them():
    finding = the_one(replace(ON_P100, manifest=CPU, wheels=CPU_IMAGE.wheels, own=SelfReport()), Verdict.WARN)

    assert "2 GPUs" in str(finding.seen)
    assert (finding.code, finding.action, finding.owner) == ("images.cpu-build-on-gpus", "change-setting", "user")


@pytest.mark.parametrize("part", ["cuda", "cudnn", "nccl"])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": "1.2.3"}, "images.library-version-differs"),
        ({"error": "cannot open shared object file"}, "images.library-not-loading"),
        ({"paths": ("/a/x", "/b/x")}, "images.library-copies"),
    ],
)
def test_a_library_that_is_not_as_promised_fails(part, changes, code):
    finding = the_one(library(part, **changes), Verdict.FAIL)

    assert (finding.cause, finding.code) == ("library-mismatch", code)


def test_a_promised_library_that_is_missing_fails():
    libraries = {part: library for part, library in OWN.libraries.items() if part != "nccl"}

    assert "NCCL: missing" in str(the_one(on(ON_P100, {"libraries": libraries}), Verdict.FAIL).seen)


def test_a_self_report_that_died_is_not_known():
    """Neither the framework's libraries nor the driver's are called missing for it."""
    findings = found(replace(ON_P100, own=SelfReport(device="open", error="signal 11")))

    assert Verdict.FAIL not in {finding.verdict for finding in findings}
    assert ["signal 11" in str(f.seen) for f in findings if f.verdict is Verdict.UNKNOWN] == [True, True]


@pytest.mark.parametrize("version", ["2.14.0+cu126", "2.14.1+cpu", None])
def test_another_framework_than_promised_fails(version):
    wheels = tuple(replace(wheel, version=version) for wheel in ON_P100.wheels) if version else ()

    assert the_one(replace(ON_P100, wheels=wheels), Verdict.FAIL).code == "images.framework-changed"


MISMATCH = NvmlFailure(call="nvmlInit", code=18, name="LibRmVersionMismatch")
VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
BY_DRIVER = "software.library-and-module-missing-in-container"


@pytest.mark.parametrize(
    ("values", "verdict", "cause", "code"),
    [
        (WITHOUT_GPUS, "unknown", None, "images.started-without-gpus"),
        (ON_A_LAPTOP, "unknown", None, "software.no-gpu-no-driver"),
        (on(WITHOUT_GPUS, environment=VOID), "unknown", "leftover-environment", "images.gpus-not-requested"),
        (on(WITHOUT_GPUS, {"device": "open"}), "unknown", None, "images.libraries-not-given"),
        (on(WITHOUT_GPUS, driver=DriverState()), "fail", "driver-not-loaded", BY_DRIVER),
        (on(WITHOUT_GPUS, {"device": "EPERM"}), "fail", "gpu-lost", "images.device-denied-by-cgroup"),
        (on(ON_P100, {"device": "EPERM"}), "fail", "gpu-lost", "images.device-denied-by-cgroup"),
        (on(WITHOUT_GPUS, {"device": "EACCES"}), "fail", None, "images.device-denied-by-unknown-group"),
        # A CDI specification sets "void" so that the runtime hook adds nothing: it hides no GPU.
        (
            on(ON_P100, nvml=MISMATCH, environment=VOID),
            "fail",
            "driver-mismatch",
            "software.driver-versions-differ-in-container",
        ),
        (
            on(ON_P100, nvml=replace(reading(p100(0), p100(1)), driver_version="525.60.12"), driver=DriverState()),
            "fail",
            "library-mismatch",
            "software.driver-below-floor",
        ),
        (
            on(ON_P100, environment={"CUDA_VISIBLE_DEVICES": ""}),
            "warn",
            "leftover-environment",
            "images.gpus-hidden-from-cuda",
        ),
        (on(ON_P100, {"driver": NO_LIBCUDA}), "fail", None, "images.libcuda-missing"),
        (
            on(ON_P100, {"driver": NO_LIBCUDA, "driver_files": ("/usr/lib/wsl/lib/libcuda.so.1",)}),
            "fail",
            None,
            "images.libcuda-not-loading",
        ),
        (on(ON_P100, {"driver": None}), "unknown", None, "images.libcuda-unknown"),
        (on(ON_P100, nvml=reading()), "unknown", None, "images.gpus-not-given"),
        (
            on(ON_P100, {"shadowing": {"/usr/local/cuda/lib64": ("libcudart.so.12",)}}),
            "warn",
            "leftover-environment",
            "images.search-path-shadows",
        ),
    ],
)
def test_who_keeps_the_gpu_from_the_container_is_named(values, verdict, cause, code):
    finding = the_one(values, Verdict(verdict))

    assert (finding.cause, finding.code) == (cause, code)


@pytest.mark.parametrize(
    ("code", "verdict", "cause"),
    [
        (999, "unknown", None),
        (8, "fail", None),
        (LATE, "fail", "wedged-driver"),
        (CRASHED, "fail", "wedged-driver"),
        (DEFECT, "unknown", None),
        (NOT_STARTED, "unknown", "host-resources"),
    ],
)
def test_other_failures_of_nvml_are_findings_of_the_driver_check(code, verdict, cause):
    nvml = NvmlFailure(call="nvmlInit", code=code, name="Failed")
    finding = the_one(on(ON_P100, nvml=nvml), Verdict(verdict))

    assert (finding.check, finding.cause) == ("driver", cause)


def test_a_gpu_without_code_in_the_build_is_named():
    finding = the_one(on(ON_P100, manifest={"code": ("sm_75", "sm_80")}, nvml=reading(p100(0))), Verdict.FAIL)

    assert (finding.cause, finding.subject) == ("arch-not-in-build", "gpu:0000:03:00.0")
    assert "torch-cu126" in finding.fix


@pytest.mark.parametrize("version", [None, "", "not a version"])
def test_a_driver_whose_version_is_not_understood_is_unknown(version):
    """It was older than no minimum, and passed."""
    values = on(ON_P100, nvml=replace(ON_P100.facts.nvml, driver_version=version), driver=DriverState())

    assert "images.driver-version-unknown" in [f.code for f in found(values) if f.verdict is Verdict.UNKNOWN]


def test_a_gpu_whose_capability_is_not_reported_is_unknown():
    """It had code for every GPU that it knew nothing of."""
    finding = the_one(on(ON_P100, nvml=reading(replace(p100(0), compute_capability=None), p100(1))), Verdict.UNKNOWN)

    assert (finding.code, finding.subject) == ("software.capability-unknown", "gpu:0000:03:00.0")


def test_ptx_of_the_newest_code_serves_a_newer_gpu():
    assert status(on(ON_P100, manifest={"code": ("sm_60", "compute_80")}, nvml=reading(h100(0)))) == 0


@pytest.mark.parametrize(
    ("shm", "gpus", "verdict"),
    [
        (None, 0, Verdict.WARN),
        (1, 0, Verdict.WARN),
        (62.5, 0, Verdict.SKIP),
        (64, 0, Verdict.SKIP),
        (64, 1, Verdict.SKIP),
        (64, 2, Verdict.WARN),
        (1024, 2, Verdict.PASS),
    ],
)
def test_shared_memory_counts_where_several_ranks_would_use_it(shm, gpus, verdict):
    nvml = reading(*(p100(index) for index in range(gpus))) if gpus else ON_A_LAPTOP.facts.nvml
    finding = found(on(ON_P100, nvml=nvml, limits=Limits(shm_bytes=shm and int(shm * 2**20))))[-1]

    assert finding.verdict is verdict
    if verdict is not Verdict.PASS:
        code = "images.shm-too-small" if verdict is Verdict.WARN else "images.shm-enough-alone"
        assert finding.code == code


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({"version": "2.14.1+cu126", "cuda": "12.6", "cudnn": "9.10.2", "nccl": "2.29.3"}, Verdict.PASS),
        ({"version": "2.14.1+cu126", "cuda": "12.6", "cudnn": "8.9.7", "nccl": "2.29.3"}, Verdict.FAIL),
        ({"version": "2.14.1+cu126", "cuda": "12.6", "cudnn": None, "nccl": "2.29.3"}, Verdict.FAIL),
        ({"error": "ImportError"}, Verdict.FAIL),
    ],
)
def test_what_the_framework_says_of_itself_is_held_to_the_promise(told, verdict):
    assert found(replace(ON_P100, full=told))[4].verdict is verdict


def test_a_cudnn_of_another_major_than_tensorflow_was_built_with_fails():
    """The defect that TensorFlow's published images had for months."""
    manifest = {"framework": "tensorflow", "version": "2.21.0", "built_for": "12.5", "cuda": "12.9"}
    wheels = tuple(replace(wheel, name="tensorflow", version="2.21.0") for wheel in ON_P100.wheels)
    libraries = {**OWN.libraries, "cuda": replace(OWN.libraries["cuda"], version="12.9")}
    values = replace(on(ON_P100, {"libraries": libraries}, manifest), wheels=wheels)
    told = {"version": "2.21.0", "cuda": "12.5.1", "cudnn": "9", "nccl": None}

    assert status(replace(values, full=told)) == 0
    assert "cudnn 8" in str(the_one(replace(values, full={**told, "cudnn": "8"}), Verdict.FAIL).seen)


def test_a_damaged_promise_is_not_known_and_outside_an_image_there_is_none():
    assert "manifest" in str(the_one(replace(ON_P100, manifest="image.json: cut off"), Verdict.UNKNOWN).wanted)
    assert the_one(replace(ON_P100, manifest=None), Verdict.SKIP)


def denied(**own):
    (finding,) = judge.evaluate_gpus(on(WITHOUT_GPUS, own))
    return finding


def rights(mode, owner=0, group=44, user=1000, groups=(1000,)):
    return Rights(mode=mode, uid=owner, gid=group, process_uid=user, process_gids=groups)


@pytest.mark.parametrize(
    ("of", "code"),
    [
        (rights("0600"), "images.device-denied-by-mode"),
        (rights("0660"), "images.device-denied-by-mode"),
        (rights("0666", group=0), "images.device-denied-by-policy"),
        (rights("0660", groups=(44, 1000)), "images.device-denied-by-policy"),
        # Rootless: root of the namespace is another user to the host, whose root shows as nobody.
        (rights("0660", owner=65534, group=65534, user=0, groups=(0,)), "images.device-denied-by-unknown-group"),
        (rights("0600", user=0, groups=(0,)), "images.device-denied-by-policy"),
    ],
)
def test_no_access_is_no_loss_and_names_who_denies_it(of, code):
    finding = denied(device="EACCES", rights=of)

    assert (finding.cause, finding.code) == (None, code)
    assert (finding.action, finding.owner) == ("change-setting", "user")
    assert f"mode {of.mode}" in finding.evidence[-1]


def test_devices_that_the_cgroup_denies_are_likely_lost_and_not_for_certain():
    """A container that got /dev as a volume looks the same."""
    assert denied(device="EPERM").confidence == "likely"


CARD = replace(P100_ON_BUS[0], class_id="020700", infiniband_names=("mlx5_0",))
RDMA_HOST = on(ON_P100, pci=(*P100_ON_BUS, CARD), limits=Limits(shm_bytes=8 << 30, memlock_bytes=-1))
WITH_RDMA = on(RDMA_HOST, {"rdma": ("uverbs0",), "verbs": "loaded"})
NO_VERBS = "libibverbs.so.1: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("values", "verdict", "check"),
    [
        (WITH_RDMA, "pass", "locked-memory"),
        (on(WITH_RDMA, limits=Limits(memlock_bytes=64 * 1024)), "warn", "locked-memory"),
        (on(WITH_RDMA, limits=Limits()), "unknown", "locked-memory"),
        (on(WITH_RDMA, {"verbs": NO_VERBS}), "warn", "image"),
        (RDMA_HOST, "skip", "image"),
    ],
)
def test_what_keeps_nccl_from_the_network_is_told(values, verdict, check):
    (finding,) = judge.evaluate_network(values)

    assert (finding.verdict, finding.check) == (Verdict(verdict), check)


@pytest.mark.parametrize("values", [ON_P100, CPU_IMAGE, on(WITH_RDMA, {"error": "signal 11"})])
def test_without_a_device_in_a_cpu_build_and_after_a_lost_self_report_the_network_is_not_judged(values):
    assert list(judge.evaluate_network(values)) == []


SOURCES = {
    "cuda_runtime/lib/libcudart.so.12": "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }",
    "nccl/lib/libnccl.so.2": "int ncclGetVersion(int *v) { *v = 23203; return 0; }",
    "cudnn/lib/libcudnn.so.9": "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 92800; }",
}


def compiled(folder, name, code):
    target = folder / "nvidia" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = folder / "source.c"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site-packages")
    for name, code in SOURCES.items():
        compiled(folder, name, code)
    return folder


def test_each_library_answers_for_itself(libraries):
    found = selfreport.report(libraries)

    assert {part: row.version for part, row in found.items()} == {
        "cuda": "12.9",
        "cudnn": "9.28.0",
        "nccl": "2.32.3",
    }


def test_a_second_copy_is_seen_and_a_link_is_none(libraries, tmp_path):
    folder = tmp_path / "site-packages"
    shutil.copytree(libraries, folder)
    lib = folder / "nvidia/nccl/lib"
    (lib / "libnccl.so").symlink_to("libnccl.so.2")
    (lib / "libnccl.so.2.32").symlink_to("libnccl.so.2")
    assert len(selfreport.copies(folder, "libnccl.so.")) == 1

    shutil.copy(lib / "libnccl.so.2", folder / "nvidia/cudnn/lib/")

    assert len(selfreport.copies(folder, "libnccl.so.")) == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("int ncclGetVersion(int *v) { *v = 0; return 3; }", "returned 3"),
        ("int other(void) { return 0; }", "ncclGetVersion"),
    ],
)
def test_a_library_that_refuses_is_told_in_its_words(tmp_path, code, words):
    compiled(tmp_path, "nccl/lib/libnccl.so.2", code)

    assert words in str(selfreport.report(tmp_path)["nccl"].error)


def test_the_control_device_is_open_missing_or_refused(tmp_path):
    assert selfreport.device_access(str(tmp_path / "none")) is None
    assert selfreport.device_access("/dev/null") == "open"
    # What a folder answers to open(O_RDWR), as root too.
    assert selfreport.device_access(str(tmp_path)) == "EISDIR"


def test_libcuda_is_found_where_the_loader_finds_it(tmp_path, monkeypatch):
    """GKE mounts the driver in a folder that LD_LIBRARY_PATH alone names: ldconfig's cache does not know it."""
    source = tmp_path / "driver.c"
    source.write_text("int cuInit(unsigned flags) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True)
    without = probe.query_libraries(quick=True).driver
    if without == "loaded":
        pytest.skip("this machine has a driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    assert probe.query_libraries(quick=True).driver == "loaded"
    assert ctypes.util.find_library("cuda") is None, "what was asked before"
    assert "libcuda.so.1: cannot open shared object file" in str(without)


@pytest.mark.parametrize(
    ("code", "seconds", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 60, "SIGSEGV"),
        ("raise SystemExit('no')", 60, "exit status 1 no"),
        ("import time; time.sleep(60)", 1, "no response in 1 s"),
    ],
)
def test_a_child_that_dies_or_hangs_is_told_in_words(code, seconds, words):
    assert probe._child([sys.executable, "-c", code], seconds) == words


def test_an_unreadable_answer_is_told(monkeypatch):
    monkeypatch.setattr(probe, "_child", lambda *_: b"not json")

    assert "unreadable" in (probe.query_libraries(quick=True).error or "")
    assert "unreadable" in probe.query_framework("torch")["error"]


def test_rights_of_the_device_are_read_with_the_processes_own_ids(tmp_path):
    device = tmp_path / "nvidiactl"
    device.touch(mode=0o600)

    rights = selfreport.device_rights(str(device))

    assert rights
    assert (rights.mode, rights.uid, rights.process_uid) == ("0600", os.geteuid(), os.geteuid())
    assert rights.allow
    assert selfreport.device_rights(str(tmp_path / "none")) is None


def test_only_libraries_that_wheels_bring_too_shadow_them(tmp_path):
    """Apptainer's folder holds the driver; a CUDA toolkit's holds what the framework was not tested with."""
    driver, toolkit = tmp_path / "libs", tmp_path / "cuda"
    for path in (driver / "libcuda.so.1", driver / "libnvidia-ml.so.1", toolkit / "libcudart.so.12"):
        path.parent.mkdir(exist_ok=True)
        path.touch()

    assert selfreport.shadowing(f"{driver}::{toolkit}:{tmp_path}/none") == {str(toolkit): ("libcudart.so.12",)}
