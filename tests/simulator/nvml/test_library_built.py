"""How the library is built: without a memory error, and taken ready-made where an environment brings it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucheck.simulator import compiler
from gpucheck.simulator.nvml import library as builder
from gpucheck.simulator.nvml.exports import exports


def test_library_has_no_memory_error(activate, tmp_path):
    """The same calls under the address and undefined-behaviour sanitizers, with the tightest buffers."""
    activate("p100-pcie-x2")
    program = tmp_path / "asan.py"
    program.write_text(
        "import pynvml\n"
        "pynvml.nvmlInit()\n"
        "for i in range(pynvml.nvmlDeviceGetCount()):\n"
        "    h = pynvml.nvmlDeviceGetHandleByIndex(i)\n"
        "    pynvml.nvmlDeviceGetName(h); pynvml.nvmlDeviceGetPciInfo(h); pynvml.nvmlDeviceGetCpuAffinity(h, 1)\n"
        "    pynvml.nvmlDeviceGetMemoryInfo(h, pynvml.nvmlMemory_v2); pynvml.nvmlDeviceGetFieldValues(h, [91, 94])\n"
        "    pynvml.nvmlDeviceGetComputeRunningProcesses(h)\n"
        "pynvml.nvmlShutdown()\nprint('done')\n"
    )
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("this C compiler has no address sanitizer")
    output = tmp_path / "lib" / "libnvidia-ml.so.580.178.04"
    output.parent.mkdir()
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    builder.compile_library(output.parent, exports("580.178.04"), flags).rename(output)
    (output.parent / "libnvidia-ml.so.1").symlink_to(output.name)
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime.stdout.strip(),
        "LD_LIBRARY_PATH": str(output.parent),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_an_environment_that_brings_the_library_needs_no_compiler(tmp_path, monkeypatch):
    """Platform wheels and container images do: what they contain is of exactly this source, or it is not used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    builder.build_library(tmp_path / "first", "580.178.04")
    (tmp_path / "cache/gpucheck/libraries").rename(tmp_path / "libraries")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="C compiler"):
        builder.build_library(tmp_path / "second", "580.178.04")

    monkeypatch.setattr(compiler, "SHIPPED", tmp_path / "libraries")

    built = builder.build_library(tmp_path / "second", "580.178.04")
    assert built.read_bytes() == (tmp_path / "first/libnvidia-ml.so.580.178.04").read_bytes()
