"""CUDA libraries are asked for their own versions, without a GPU: here, stand-ins compiled on the spot."""

import ctypes.util
import os
import shutil
import subprocess
import sys

import msgspec
import pytest

from gpucheck.images import probe, selfreport

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

    assert {part: row["version"] for part, row in found.items()} == {
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

    assert words in str(selfreport.report(tmp_path)["nccl"]["error"])


@pytest.mark.parametrize(
    ("part", "code", "words"),
    [("cuda", 13020, "13.2"), ("cudnn", 92600, "9.26.0"), ("cudnn", 8907, "8.9.7"), ("nccl", 23007, "2.30.7")],
)
def test_version_codes_are_read_as_their_headers_write_them(part, code, words):
    assert selfreport.in_words(part, code) == words


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

    rights = msgspec.convert(selfreport.device_rights(str(device)), probe.Rights)

    assert (rights.mode, rights.uid, rights.process_uid) == ("0600", os.geteuid(), os.geteuid())
    assert rights.allow
    assert selfreport.device_rights(str(tmp_path / "none")) is None


def test_a_driver_in_a_folder_of_its_own_is_found_though_the_loader_does_not_search_it(tmp_path):
    (tmp_path / "libcuda.so.1").touch()

    assert selfreport.driver_files((str(tmp_path), "/nowhere")) == [f"{tmp_path}/libcuda.so.1"]


def test_only_libraries_that_wheels_bring_too_shadow_them(tmp_path):
    """Apptainer's folder holds the driver; a CUDA toolkit's holds what the framework was not tested with."""
    driver, toolkit = tmp_path / "libs", tmp_path / "cuda"
    for path in (driver / "libcuda.so.1", driver / "libnvidia-ml.so.1", toolkit / "libcudart.so.12"):
        path.parent.mkdir(exist_ok=True)
        path.touch()

    assert selfreport.shadowing(f"{driver}::{toolkit}:{tmp_path}/none") == {str(toolkit): ["libcudart.so.12"]}
