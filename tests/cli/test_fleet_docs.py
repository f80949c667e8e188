"""docs/fleet.md: every command is run, every script too, with the cluster's own commands played by small scripts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import forked

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in n01 n02; do SLURMD_NODENAME=$node "$@"; done
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder where `gpucheck` is ours and the cluster's commands are played."""
    folder = tmp_path_factory.mktemp("docs")
    tools = {
        "gpucheck": f'#!/bin/bash\nexec {sys.executable} -m gpucheck "$@"\n',
        "srun": SRUN,
        "scontrol": "#!/bin/bash\nprintf 'n01\\nn02\\nn03\\n'\n",
    }
    (folder / "bin").mkdir()
    for name, text in tools.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


def shell(place, script, **variables):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    return subprocess.run(
        ["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def ran(place):
    """Every console command of the page, in its order; by a shell where it needs one."""

    def run(command):
        program, *words = command.split()
        if program == "gpucheck":
            return forked.gpucheck(*words, cwd=place)
        return shell(place, command.replace("python bench", f"{sys.executable} {ROOT}/bench"))

    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    return {command: run(command) for command in commands}


def test_every_command_of_the_page_runs(ran):
    """Judging commands exit with the fleet's verdict; the simulated fleet has failing hosts."""
    assert len(ran) >= 8
    wrong = {command: done.stderr for command, done in ran.items() if done.returncode not in (0, 1, 2)}
    assert not wrong
    assert not [command for command, done in ran.items() if "Traceback" in done.stderr or "Error:" in done.stderr]


def test_the_fleet_of_the_page_shows_what_the_page_promises(ran, place):
    text = ran["gpucheck fleet report reports"].stdout

    assert "rack = r002" in text
    assert "48 hosts: 2 fail, 16 warn, 30 pass, 16 outliers" in text
    assert sorted(p.suffix for p in place.glob("fleet.*")) == [".csv", ".html", ".prom", ".xml"]


def test_the_slurm_job_writes_the_folder_and_misses_the_dead_node(place):
    job = next(block for block in blocks("bash") if "#SBATCH" in block)
    simulated = job.replace("gpucheck verify", "gpucheck verify --simulate p100-pcie-x2")

    done = shell(place, simulated, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[01-03]", LEVEL="quick")

    assert {"n01.json", "n02.json", "fleet.html"} == {p.name for p in (place / "gpucheck-7").iterdir()}
    assert "n03" in done.stdout


def test_the_kubernetes_example_is_one_pod_a_node():
    (text,) = blocks("yaml")
    found = yaml.safe_load(text)

    pod = found["spec"]["template"]
    assert found["kind"] == "DaemonSet"
    assert found["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pod["spec"]["hostNetwork"] is True
    assert {m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]} == {
        v["name"] for v in pod["spec"]["volumes"]
    }


@pytest.mark.parametrize("script", blocks("bash"))
def test_the_scripts_are_shell(script):
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
