"""A node that provisions itself: ansible-pull from a git copy of the project, on a bare light host, no controller."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.e2e import ROOT, Run
from tests.lab.own_lab import OwnLab

pytestmark = pytest.mark.more_labs

SUBNET = os.environ.get("GPUCHECK_TEST_PULL_SUBNET", "10.213.50.0/24")
LAB = OwnLab("gpucheck-pull", SUBNET)
NODE = LAB.container
PULL = (
    "cd /root && ANSIBLE_CONFIG=playbooks/ansible.cfg PATH=/opt/provision/bin:$PATH "
    "ansible-pull --url /srv/site.git --directory /srv/site --inventory playbooks/inventory/pull/hosts.yml "
    "--extra-vars reports_dir=/srv/site/reports playbooks/provision.yml"
)

# What a person does once on a node: pip told where the wheels are, the project and Ansible in an environment.
PREPARE = """
set -e
printf '[global]\\nno-index = true\\nfind-links = /srv/wheels http://MIRROR/wheels/\\n' > /etc/pip.conf
printf 'trusted-host = MIRROR\\n' >> /etc/pip.conf
ln -s git /usr/local/bin/git-upload-pack
git config --global --add safe.directory '*'
git clone --quiet /srv/site.git /srv/site
python3 -m venv /opt/provision
/opt/provision/bin/pip install --quiet setuptools '/srv/site[provision]'
"""


def sh(*words: str | Path, cwd: Path = ROOT) -> str:
    """Run a program that has to succeed, and return what it prints."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on_node(script: str) -> Run:
    return Run(
        subprocess.run(["docker", "exec", NODE, "sh", "-c", script], capture_output=True, text=True, check=False)
    )


def site_repository(folder: Path) -> Path:
    """The project's tracked files as a site keeps them: with its own specification and its own nodes, in git."""
    tree = folder / "tree"
    # As the checkout stands, also where it is not committed yet.
    for name in sh("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    variables = yaml.safe_load((LAB.directory / "inventory.yml").read_text())["gpu"]["vars"]
    (tree / "stack.yml").write_text((LAB.directory / "stack.yml").read_text())
    inventory = yaml.safe_load((tree / "playbooks/inventory/pull/hosts.yml").read_text())
    inventory["gpu"]["hosts"] = {"light-001": None, "light-002": None}
    inventory["gpu"]["vars"] |= {"gpucheck_pip_args": variables["gpucheck_pip_args"], "preflight_minimum_free_gib": 1}
    (tree / "playbooks/inventory/pull/hosts.yml").write_text(yaml.safe_dump(inventory))
    sh("git", "init", "--quiet", cwd=tree)
    sh("git", "add", "--all", cwd=tree)
    identity = ("-c", "user.name=site", "-c", "user.email=site@example.org")
    sh("git", *identity, "commit", "--quiet", "--message", "our site", cwd=tree)
    sh("git", "clone", "--quiet", "--bare", tree, folder / "site.git")
    return folder / "site.git"


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("pull")
    with LAB.fresh():
        sh("docker", "cp", site_repository(folder), f"{NODE}:/srv/site.git")
        wheels = folder / "wheels"
        # What an index would give it: everything that the project and its provisioning need.
        download = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels)
        sh(
            *download,
            "--constraint",
            "constraints.txt",
            "--find-links",
            ".cache/lab/wheelhouse",
            f"{ROOT}[provision]",
            "setuptools",
        )
        sh("docker", "cp", wheels, f"{NODE}:/srv/wheels")
        git = sh("which", "git").strip()
        # The hosts' image has no git, and the mirror none to give: the same distribution's is here.
        sh("docker", "cp", "-L", git, f"{NODE}:/usr/local/bin/git")
        made = on_node(PREPARE.replace("MIRROR", f"{SUBNET.rsplit('.', 1)[0]}.10"))
        assert made.status == 0, made.text
        yield


def outcome() -> dict[str, str]:
    found: dict[str, str] = json.loads(on_node("cat /srv/site/reports/provision.json").text)["hosts"]["light-001"]
    return found


def test_a_node_provisions_itself_and_asks_a_person_for_the_reboot(node):
    first = on_node(PULL)

    assert "light-001: reboot this host yourself" in first.plain, first.text
    assert "light-002" not in first.plain
    assert first.status != 0
    assert outcome()["state"] == "failed"
    assert on_node("cat /var/lib/gpucheck-lab/boots").text.strip() == "1"


def test_after_the_reboot_it_goes_on_to_a_passing_report(node):
    sh("docker", "restart", "--time", "1", NODE)

    second = on_node(PULL)

    assert second.status == 0, second.text
    assert outcome()["state"] == "changed"
    assert json.loads(on_node("cat /srv/site/reports/light-001.json").text)["verdict"] == "pass"


def test_the_next_pull_changes_nothing(node):
    third = on_node(PULL)

    assert third.status == 0, third.text
    assert outcome()["state"] == "unchanged"
