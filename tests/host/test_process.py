"""What surrounds this process: limits, steering variables, libraries that the loader finds."""

import platform
import resource

from gpucheck.host import system
from gpucheck.host.system import belongs, cache_entries, read_libraries, read_limits, steering
from gpucheck.model import LoaderLibrary

CACHE = """3 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
\tlibcudart.so.12 (libc6) => /usr/lib32/libcudart.so.12
"""


def test_limits_of_this_process(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 5))
    seen = read_limits()

    assert (seen.memlock_bytes, seen.nofile) == (-1, -1)
    assert (seen.shm_bytes or 0) >= (seen.shm_free_bytes or 0) >= 0


def test_missing_shared_memory_is_not_zero(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "SHARED_MEMORY", str(tmp_path / "none"))

    assert read_limits().shm_bytes is None


def test_only_steering_variables_and_no_secret():
    environment = {
        "NCCL_P2P_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": "/opt/lib",
        "HOME": "/home/alice",
        "AWS_SECRET_ACCESS_KEY": "x",
        "NVIDIA_API_KEY": "nvapi-x",
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_USER": "alice",
        "TF_VAR_token": "y",
        "MY_NCCL_THING": "z",
    }

    assert steering(environment) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": "/opt/lib",
        "NCCL_P2P_DISABLE": "1",
        "SLURM_JOB_ID": "77",
    }


def test_search_path_comes_before_the_cache(tmp_path, monkeypatch):
    """In the loader's own order: what stands first is what a program gets."""
    (tmp_path / "libnccl.so.2.27.3").touch()
    (tmp_path / "libnccl_static.a").touch()
    monkeypatch.setattr(system, "output", lambda _: CACHE)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    assert read_libraries(["libnccl"], f"{tmp_path}:/nonexistent") == (
        LoaderLibrary(soname="libnccl.so.2.27.3", path=f"{tmp_path}/libnccl.so.2.27.3", source="LD_LIBRARY_PATH"),
        LoaderLibrary(soname="libnccl.so.2", path="/usr/lib/x86_64-linux-gnu/libnccl.so.2", source="ldconfig"),
    )


def test_loader_cache_that_cannot_be_listed_is_not_empty(monkeypatch, tmp_path):
    """A folder on LD_LIBRARY_PATH is only half of what the loader searches."""
    (tmp_path / "libnccl.so.2").touch()
    monkeypatch.setattr(system, "output", lambda command: None)

    assert read_libraries(["libnccl"], str(tmp_path)) is None


def test_libraries_for_another_word_size_are_left_out(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    assert [library.path for library in cache_entries(CACHE)] == [
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "/usr/local/cuda/lib64/libcudart.so.12",
    ]


def test_libraries_of_an_arm_server(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    listing = "\tlibnccl.so.2 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libnccl.so.2\n"

    assert len(list(cache_entries(listing))) == 1


def test_a_name_is_the_whole_stem():
    """libcudart is not libcudart_static, and libnvrtc-builtins is not libnvrtc."""
    assert belongs("libcudart.so.12", ["libcudart"])
    assert not belongs("libnvrtc-builtins.so.12.9", ["libnvrtc"])
    assert not belongs("libcudart", ["libcudart"])
