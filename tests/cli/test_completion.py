"""Words that a shell completes: names of machines, faults, steps, causes, documents; and never an error message."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from gpucheck import simulator
from gpucheck.cli import cli


def completed(line):
    """The values for the last word of a command line."""
    *words, last = line.split(" ")
    return {item.value: item for item in ShellComplete(cli, {}, "gpucheck", "X").get_completions(words, last)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *(
            (f"{command} --simulate hgx-", "hgx-h100-x8")
            for command in ("verify", "topo", "bandwidth", "smoke", "record")
        ),
        ("verify --simulate p100-pcie-x2 --fault pcie-", "pcie-width"),
        ("simulate p100-pcie-x2 --fault pcie-", "pcie-width"),
        ("verify --only nvl", "nvlink"),
        ("verify --skip qui", "quick"),
        ("explain nvlink-do", "nvlink-down"),
        ("explain shared-m", "shared-memory"),
        ("explain gpu.power-limit-l", "gpu.power-limit-lowered"),
        ("explain acs-redirect iommu-t", "iommu-translation"),
        ("simulate hgx-h1", "hgx-h100-x8"),
        ("simulate --fault gpu-lost:gpu=1 hgx-h1", "hgx-h100-x8"),
        ("schema fle", "fleet"),
        ("image build torch-c", "torch-cpu"),
        ("diagnose --as nvb", "nvbandwidth"),
        ("diagnose --gpu H10", "H100"),
        ("stack resolve --gpu 8xH20", "8xH200"),
        ("stack resolve --os rocky-", "rocky-9"),
    ],
)
def test_names(line, expected):
    found = completed(line)

    assert expected in found
    assert all(name.startswith(line.rpartition(" ")[2]) for name in found)


def test_files_are_left_to_the_shell():
    assert [(item.type, name) for name, item in completed("verify --simulate ./my").items()] == [("file", "./my")]
    assert {item.type for item in completed("simulate hgx-h100-x8 -- ./prog").values()} <= {"file"}


def test_an_error_is_no_completion(monkeypatch):
    def broken(*_):
        raise ValueError("a table is broken")

    monkeypatch.setattr(simulator, "profile_names", broken)

    assert completed("verify --simulate hgx-") == {}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path):
    """The documented line."""
    (tmp_path / "gpucheck").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpucheck "$@"\n')
    (tmp_path / "gpucheck").chmod(0o755)
    script = """
    eval "$(_GPUCHECK_COMPLETE=bash_source gpucheck)"
    COMP_WORDS=(gpucheck verify --simulate hgx-h2) COMP_CWORD=3
    _gpucheck_completion gpucheck
    echo "${COMPREPLY[@]}"
    """
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("hgx-h200-x8\n", "")
