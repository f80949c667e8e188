"""Golden images: what Packer has Ansible do at build time, and what cloud-init does at the first boot."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from gpucheck.cli import main
from tests.playbooks.test_runs import playbook

FOLDER = Path(__file__).parents[2] / "docs/integrations/golden-image"
PACKER = (FOLDER / "gpu-node.pkr.hcl").read_text(encoding="utf-8")
EXAMPLE = "playbooks/inventory/example/hosts.yml"


def stated(key):
    """A string or a list of strings of the Packer file."""
    (value,) = re.findall(rf'^\s*{key}\s*=\s*(".*"|\[.*\])$', PACKER, re.M)
    return json.loads(value)


def unit():
    """The unit that cloud-init writes, as text."""
    found = yaml.safe_load((FOLDER / "user-data.yml").read_text(encoding="utf-8"))
    (file,) = found["write_files"]
    assert ["systemctl", "enable", "--now", Path(file["path"]).name] in found["runcmd"]
    return file["content"]


def tasks(name, *words):
    done = playbook(EXAMPLE, "--list-tasks", *words, f"playbooks/{name}")
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"^      (.*?)\tTAGS", done.stdout, re.M))


@pytest.mark.slow
def test_building_installs_and_does_not_verify():
    found = tasks("provision.yml", *stated("extra_arguments"))

    assert {"Read the host in one round trip", "Apply the differences", "Fail with the reason of the host"} <= found
    assert "Verify the host and fetch its report" not in found


@pytest.mark.slow
def test_verifying_alone_installs_nothing():
    assert "Apply the differences" not in tasks("verify.yml")
    assert "Verify the host and fetch its report" in tasks("verify.yml")


def test_the_packer_file_names_what_is_there():
    assert (FOLDER / stated("playbook_file")).resolve().is_file()
    (variable,) = stated("ansible_env_vars")
    assert (FOLDER / variable.removeprefix("ANSIBLE_CONFIG=")).resolve().is_file()
    assert stated("groups") == ["gpu"]


def test_the_first_boot_leaves_a_report_and_is_not_repeated(tmp_path):
    """The image must not carry the builder's report, or no machine would ever be proven."""
    (command,) = re.findall(r"^ExecStart=(.*)$", unit(), re.M)
    program, *words = shlex.split(command)
    report = words[words.index("-o") + 1]
    assert f"ConditionPathExists=!{report}" in unit()
    assert f"rm -f {report}" in PACKER
    assert program == "/opt/gpucheck/bin/gpucheck"
    words[words.index("-o") + 1] = str(tmp_path / "report.json")

    with pytest.raises(SystemExit) as ended:
        main([*words, "--level", "quick", "--simulate", "p100-pcie-x2"])

    assert ended.value.code in (0, 1)
    assert json.loads((tmp_path / "report.json").read_text())["simulated"] is True
