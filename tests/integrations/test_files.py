"""docs/integrations: what Kubernetes and systemd read.

Manifests against Kubernetes' own schemas of several releases, and against the policies of strict clusters.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from gpucheck.cli import main

PAGES = Path(__file__).parents[2] / "docs" / "integrations"
SERVICE = (PAGES / "systemd" / "gpucheck.service").read_text(encoding="utf-8")
(COMMAND,) = re.findall(r"^ExecStart=(.*)$", SERVICE, re.M)


def test_the_page_names_every_file():
    page = (PAGES / "README.md").read_text(encoding="utf-8")
    files = [
        str(path.relative_to(PAGES))
        for path in PAGES.rglob("*")
        if path.is_file() and path.name != "README.md" and path.suffix != ".pyc"
    ]

    assert files
    assert all(f"`{name}`" in page for name in files)


def test_the_daemon_set_is_one_pod_a_node_that_may_write_what_it_mounts():
    found = yaml.safe_load((PAGES / "kubernetes" / "daemonset.yaml").read_text(encoding="utf-8"))
    pod = found["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    security = container["securityContext"]

    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "DaemonSet")
    assert found["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert {m["name"] for m in container["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert (security["runAsUser"], security["readOnlyRootFilesystem"]) == (0, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys() == {"hostNetwork"}
    assert pod["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert not pod["spec"]["automountServiceAccountToken"]
    assert re.fullmatch(r"REGISTRY/\S+@sha256:DIGEST", container["image"])
    (script,) = container["args"]
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_the_units_command_writes_metrics_whatever_the_verdict(tmp_path):
    """As systemd runs it, on a simulated machine that is broken; the temporary file is gone."""
    program, *arguments = shlex.split(COMMAND)
    place = arguments.index("-o") + 1
    arguments[place] = str(tmp_path / Path(arguments[place]).name)
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--simulate", "p100-pcie-x2", "--fault", "pcie-width:gpu=1,width=8"])

    (written,) = tmp_path.iterdir()
    assert (Path(program).name, written.name) == ("gpucheck", "gpucheck.prom.new")
    assert stop.value.code == 2
    assert "SuccessExitStatus=1 2 3\n" in SERVICE
    assert "gpucheck_status" in written.read_text(encoding="utf-8")
    assert written.stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_understands_the_units(tmp_path):
    """With a program that exists here in the place of ours."""
    for unit in (PAGES / "systemd").iterdir():
        text = unit.read_text(encoding="utf-8").replace(shlex.split(COMMAND)[0], shutil.which("true") or "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    units = [str(tmp_path / name) for name in ("gpucheck.service", "gpucheck.timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)

    assert "gpucheck." not in done.stderr
    assert done.returncode == 0


JOB = PAGES / "kubernetes/smoke-nodes.yaml"
DAEMON_SET = PAGES / "kubernetes/daemonset.yaml"
# From an old release that clusters still run, and the newest that the schemas are here for.
RELEASES = ("1.29", kubernetes_validate.latest_version())


def documents(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def pod_of(path):
    return documents(path)[-1]["spec"]["template"]["spec"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", [DAEMON_SET, JOB], ids=lambda path: path.name)
def test_a_manifest_holds_to_the_schema(path, release):
    for document in documents(path):
        kubernetes_validate.validate(document, release, strict=True)


def test_the_job_passes_strict_policies():
    """Pod Security "restricted" demands each of these; OpenShift refuses ids outside of a namespace's range."""
    pod = pod_of(JOB)

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all({"emptyDir", "configMap", "persistentVolumeClaim"} & volume.keys() for volume in pod["volumes"])
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_pod_that_takes_every_gpu_unallocated_names_the_runtime():
    """With CDI, GPU Operator's default, the variable alone gives no GPU: NVIDIA's runtime has to read it."""
    pod = pod_of(DAEMON_SET)

    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    assert pod["runtimeClassName"] == "nvidia"
