"""docs/integrations: training over several hosts, as Slurm and Kubernetes start it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.playbooks.stubs import script
from tests.train.conftest import free_port

PAGES = Path(__file__).parents[2] / "docs" / "integrations"

SCONTROL = "#!/bin/sh\necho 127.0.0.1\necho node02\n"
# Two nodes, both of them this machine.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 "$@" & first=$!
SLURM_NODEID=1 "$@" & second=$!
wait $first; one=$?
wait $second; other=$?
exit $((one > other ? one : other))
"""


@pytest.mark.more
@pytest.mark.slow
def test_the_nodes_of_a_slurm_job_train_as_one(tmp_path):
    """Real ranks on two ends of the loopback; only Slurm's own programs are stand-ins."""
    gpucheck = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpucheck "$@" --framework torch --steps 10\n'
    for name, text in {"scontrol": SCONTROL, "srun": SRUN, "gpucheck": gpucheck}.items():
        script(tmp_path / name, text)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[01-02]",
        "SLURM_NNODES": "2",
        "GPUCHECK_PORT": str(free_port()),
    }
    done = subprocess.run(
        ["bash", PAGES / "slurm/smoke-nodes.sbatch"], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^PASS ", done.stdout, re.M)) >= 2, "each node reports"


def test_the_pods_of_the_job_meet_at_index_0():
    service, job = yaml.safe_load_all((PAGES / "kubernetes/smoke-nodes.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = {variable["name"]: variable["value"] for variable in container["env"]}

    assert container["args"] == ["gpucheck", "smoke"]
    assert int(words["GROUP_WORLD_SIZE"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert words["GROUP_RANK"] == "$(JOB_COMPLETION_INDEX)"
    assert words["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    assert {m["name"] for m in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
