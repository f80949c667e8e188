"""Every file of a release is installed and tried in an empty container: no network, no compiler, no other package."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.conftest import MACHINE, PYTHON, TOP, only, own

pytestmark = [pytest.mark.more_labs, pytest.mark.skipif(shutil.which("docker") is None, reason="Docker is missing")]

# A missing NVLink is found in quick checks; copies between GPUs call the simulated CUDA driver library.
TRY = """
test -z "$(command -v cc || command -v gcc)"
gpucheck --version
status=0; gpucheck verify --simulate hgx-h100-x8 --level quick --fault nvlink-down:gpu=2,link=3 || status=$?
[ $status = 2 ]
gpucheck verify --simulate rtx5090-x2 --level quick --fault nvml-release:branch=450 >/dev/null || [ $? -le 3 ]
gpucheck bandwidth --simulate p100-pcie-x2 --level quick || [ $? = 3 ]
"""
SCRIPT = "/usr/share/bash-completion/completions/gpucheck"
GONE = f'hash -r; test -z "$(command -v gpucheck; ls -d /usr/lib/gpucheck-cluster {SCRIPT})"'
SHELL = f"bash -c '. {SCRIPT}; complete -p gpucheck'\n"


@pytest.fixture(scope="session")
def images():
    """The images of the lab's hosts, by role."""
    import docker

    from gpucheck.lab.images import ensure_images

    return ensure_images(docker.from_env(), TOP, "posing")[1]


@pytest.fixture
def container(images, release, dependencies, tmp_path):
    """Run a shell script in a new container, which has the release in /release and tmp_path in /test; return stdout."""

    def run(role: str, script: str) -> str:
        volumes = {release: "/release", dependencies: "/wheels", tmp_path: "/test"}
        mounts = [word for here, there in volumes.items() for word in ("--volume", f"{here}:{there}:ro")]
        words = ["docker", "run", "--rm", "--network", "none", *mounts, images[role], "sh", "-euxc", script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


def works(printed: str) -> None:
    assert "gpucheck, version 0.1.0" in printed
    assert "GPU 2 (0000:4c:00.0): 17 NVLinks, expected 18" in printed
    assert "SIMULATED" in printed
    assert "GB/s" in printed


def in_environment(role: str) -> str:
    return f"python{PYTHON} -m venv /venv; PATH=/venv/bin:$PATH; pip install --no-index --find-links /wheels"


def test_the_wheel(container, release):
    works(container("apt-host", f"{in_environment('apt-host')} /release/{own(release).name}; {TRY}"))


def test_the_wheel_for_all_machines_names_what_is_missing(container, release):
    pure = only(release, "*-none-any.whl").name
    last = "gpucheck --version; ! gpucheck topo --simulate p100-pcie-x2 2>&1"
    printed = container("apt-host", f"{in_environment('apt-host')} /release/{pure}; {last}")

    assert "needs a C compiler" in printed
    assert "The wheels and packages for Linux on x86_64 and aarch64 contain the library" in printed


def test_the_sources(container, release, tmp_path):
    """Built by pip, which needs setuptools; its tests run from it in test_release.py."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        tmp_path,
        "setuptools>=77",
        "wheel",
    ]
    subprocess.run([*pip, "--constraint", TOP / "constraints.txt"], check=True)
    name = only(release, "gpucheck_cluster-*.tar.gz").name

    assert "gpucheck, version 0.1.0" in container(
        "apt-host", f"{in_environment('apt-host')} --find-links /test /release/{name}; gpucheck --version"
    )


@pytest.mark.skipif(PYTHON != "3.11", reason="the container has Python 3.11")
def test_the_deb(container, release):
    install = f"apt-get install --yes --quiet /release/{only(release, '*.deb').name}"
    remove = "apt-get purge --yes --quiet gpucheck-cluster"
    printed = container("apt-host", f"{install}; {TRY}{SHELL}{remove}; {GONE}")

    works(printed)
    assert "-F _gpucheck_completion gpucheck" in printed


SPEC = """Name: stand-in-python
Version: 1
Release: 1
Summary: Provides the Python of a host whose base is no RPM
License: none
Provides: /usr/bin/python{python}
AutoReqProv: no
BuildArch: noarch
%description
It is there, and no RPM owns it.
%files
"""


@pytest.mark.skipif(PYTHON != "3.11", reason="the container has Python 3.11")
@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed")
def test_the_rpm(container, release, tmp_path):
    (tmp_path / "python.spec").write_text(SPEC.format(python=PYTHON))
    words = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {tmp_path}", "--define", f"_dbpath {tmp_path}/db"]
    subprocess.run([*words, tmp_path / "python.spec"], check=True, capture_output=True)
    install = "dnf install --assumeyes --disablerepo='*' --nogpgcheck /test/RPMS/noarch/*.rpm"
    remove = "dnf remove --assumeyes gpucheck-cluster"

    works(container("dnf-host", f"{install} /release/{only(release, '*.rpm').name}; {TRY}{remove}; {GONE}"))


def test_the_collection(container, release, tmp_path):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", tmp_path]
    subprocess.run([*pip, "--constraint", TOP / "constraints.txt", "ansible-core", "PyYAML"], check=True)
    name = only(release, "gpucheck-provision-*.tar.gz").name
    play = "- {hosts: localhost, gather_facts: false, roles: [gpucheck.provision.preflight]}"
    script = f"""{in_environment("apt-host")} --find-links /test ansible-core
export LC_ALL=C.UTF-8
ansible-galaxy collection install --offline /release/{name}
ansible-galaxy collection verify --offline gpucheck.provision
ansible-doc --list --type role gpucheck.provision
ansible-doc --list --type module gpucheck.provision
echo '{play}' >/tmp/play.yml; ansible-playbook --syntax-check /tmp/play.yml
"""
    printed = container("apt-host", script)

    assert "gpucheck.provision.plan_state" in printed
    assert "playbook: /tmp/play.yml" in printed


def test_the_lock_and_the_bill_of_materials_fit_the_wheel(release, dependencies):
    """What is installed in the containers is what both of them list."""
    bill = json.loads(only(release, "*.cdx.json").read_text())
    lock = Path(release / "requirements.lock").read_text().lower().replace("_", "-")
    listed = {f"{row['name'].lower().replace('_', '-')}=={row['version']}" for row in bill["components"]}
    present = {"==".join(w.name.split("-")[:2]).lower().replace("_", "-") for w in dependencies.glob("*.whl")}

    assert present <= listed
    assert all(row in lock for row in present)
    assert MACHINE in own(release).name
