"""docs/integrations: what Kubernetes and systemd read."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

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
