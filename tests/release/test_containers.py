"""Every file of a release is installed and tried in an empty container: no network, no compiler, no other package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release import source
from release.python import wheel
from tests.release.conftest import DATE, PYTHON, TOP, only
from tests.shared import END_S, made_once

pytestmark = [pytest.mark.more_labs, pytest.mark.skipif(shutil.which("docker") is None, reason="Docker is missing")]

# A missing NVLink is found in quick checks; copies between GPUs call the simulated CUDA driver library.
TRY = """
test -z "$(command -v cc || command -v gcc)"
gpucheck --version
status=0; gpucheck verify --simulate hgx-h100-x8 --level quick --fault nvlink-down:gpu=2,link=3 || status=$?
[ $status = 2 ]
gpucheck verify --simulate rtx5090-x2 --level quick --fault nvml-release:branch=450 >/dev/null || [ $? -le 3 ]
gpucheck bandwidth --simulate p100-pcie-x2 --level quick || [ $? = 3 ]
gpucheck verify --level quick >/dev/null || [ $? = 3 ]
"""
SCRIPT = "/usr/share/bash-completion/completions/gpucheck"
GONE = f'hash -r; test -z "$(command -v gpucheck; ls -d /usr/lib/gpucheck-cluster {SCRIPT})"'
LATER_DEB = """
dpkg-deb --raw-extract /release/*.deb /tmp/later
sed -i 's/^Version: .*/Version: 0.1.1/' /tmp/later/DEBIAN/control
rm /tmp/later/usr/share/zsh/vendor-completions/_gpucheck
dpkg-deb --build /tmp/later /tmp/later.deb; apt-get install --yes --quiet /tmp/later.deb
dpkg-query --show gpucheck-cluster | grep 0.1.1; test ! -e /usr/share/zsh/vendor-completions/_gpucheck
"""
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
        done = subprocess.run(words, capture_output=True, text=True, timeout=END_S, check=False)
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


@pytest.fixture(scope="session")
def later(tmp_path_factory):
    """A wheel of the next version, of the files as they are here."""

    def make(top: Path) -> None:
        source.copy(TOP, source.tracked(TOP), top / "checkout")
        stated = top / "checkout/gpucheck/__init__.py"
        stated.write_text(stated.read_text().replace("0.1.0", "0.1.1"))
        (top / "out").mkdir()
        wheel(top / "checkout", "any", top / "out", int(DATE))

    return only(made_once(tmp_path_factory, "later", make) / "out", "*.whl")


def index(folder: Path, *files: Path) -> None:
    """Write a package index as pip reads it: a page of links for each project."""
    for file in files:
        project = folder / file.name.partition("-")[0].lower().replace("_", "-").replace(".", "-")
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, project)
        with (project / "index.html").open("a") as page:
            page.write(f'<a href="{file.name}">{file.name}</a>\n')


def test_an_index_gives_the_wheel_of_the_machine_and_the_next_one(container, release, dependencies, later, tmp_path):
    """What the older one recorded is read by the newer one, and nothing of the older one stays."""
    wheels = [*release.glob("*.whl"), *dependencies.glob("*.whl")]
    unique = {file.name: file for file in wheels}.values()
    index(tmp_path / "index", *unique)
    index(tmp_path / "next", *unique, later)
    pip = "pip install --no-cache-dir --index-url file:///test"
    printed = container(
        "apt-host",
        f"""python{PYTHON} -m venv /venv; PATH=/venv/bin:$PATH
{pip}/index gpucheck-cluster; {TRY}
gpucheck record --simulate p100-pcie-x2 -o /tmp/r
gpucheck verify --level quick --from /tmp/r >/tmp/before || [ $? -le 3 ]
{pip}/next --upgrade gpucheck-cluster
gpucheck --version; pip check
gpucheck verify --level quick --from /tmp/r >/tmp/after || [ $? -le 3 ]
for seen in before after; do tail -n 1 "/tmp/$seen" | sed 's/ in [0-9.]* s / /' >"/tmp/end-$seen"; done
cmp /tmp/end-before /tmp/end-after
! ls -d /venv/lib/python*/site-packages/gpucheck_cluster-0.1.0*
""",
    )

    works(printed)
    assert "gpucheck, version 0.1.1" in printed


@pytest.mark.skipif(PYTHON != "3.11", reason="the container has Python 3.11")
def test_the_deb(container, release):
    install = f"apt-get install --yes --quiet /release/{only(release, '*.deb').name}"
    remove = "apt-get purge --yes --quiet gpucheck-cluster"
    printed = container("apt-host", f"{install}; {TRY}{SHELL}{LATER_DEB}{TRY}{remove}; {GONE}")

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
