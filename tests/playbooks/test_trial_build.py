"""The module is built before the drain, from the downloaded packages, and nothing of it stays on the host."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import script

trial, calls, kept = shared("dkms"), shared("call"), shared("kept")
Move = shared("transaction").Move

KERNELS = ["5.15.0-179-generic", "5.15.0-181-generic", "5.15.0-182-generic"]
FACTS = {"kernel": KERNELS[0], "kernels": KERNELS, "headers": KERNELS[:2]}
ORDER = {"compilers": [], "plan": {"package_manager": "apt"}}
MOVES = [
    Move("upgrade", "nvidia-dkms-580", "580.95.05-0ubuntu1", "580.178.04-1ubuntu1"),
    Move("install", "nvidia-kernel-source-580", "", "580.178.04-1ubuntu1"),
    Move("remove", "nvidia-dkms-570", "570.1-1", ""),
    Move("install", "nvidia-fs-dkms", "", "2.25"),
    Move("install", "dkms", "", "3.0"),
]
# The options after the quiet ones; a make.log where DKMS leaves it when a build fails.
DKMS = """#!/bin/sh
echo "$sign_file $(nice) $*" >>{folder}/asked
tree=$(echo "$*" | sed 's/.*--dkmstree \\([^ ]*\\).*/\\1/')
mkdir -p $tree/nvidia/580.178.04/build
printf 'CC nv.o\\nnv.c:7:1: error: no member named vm_flags\\nmake[1]: *** [nv.o] Error 1\\nmake: Leaving\\n' \\
    >$tree/nvidia/580.178.04/build/make.log
exit {status}
"""
UNPACK = "#!/bin/sh\nmkdir -p $3/usr/src/nvidia-580.178.04\n: >$3/usr/src/nvidia-580.178.04/dkms.conf\n"


class Host:
    """Runs programs as AnsibleModule does."""

    def __init__(self):
        self.params = {}

    def run_command(self, argv, environ_update, **_):
        done = subprocess.run(argv, env={**os.environ, **environ_update}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with the packages in apt's cache and a DKMS that ends with .status. folder: where it builds."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "cache").mkdir()
    for name in ("nvidia-dkms-580", "nvidia-kernel-source-580"):
        (tmp_path / f"cache/{name}_580.178.04-1ubuntu1_amd64.deb").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(trial, "FOLDER", str(tmp_path / "build"))
    monkeypatch.setattr(trial, "SPACE_BYTES", 0)
    monkeypatch.setattr(kept, "CACHES", (str(tmp_path / "cache/*.deb"),))
    script(tmp_path / "bin/dpkg-deb", UNPACK)

    def dkms(status):
        script(tmp_path / "bin/dkms", DKMS.format(folder=tmp_path, status=status))

    dkms(0)
    return SimpleNamespace(folder=tmp_path / "build", dkms=dkms, asked=lambda: (tmp_path / "asked").read_text())


def test_the_module_is_built_for_the_running_and_the_next_kernel_without_a_trace(host):
    assert trial.try_out(Host(), ORDER, MOVES, FACTS) == ""

    asked = host.asked().splitlines()
    assert [line.split(" -k ")[1] for line in asked] == KERNELS[:2]
    assert all(line.startswith("/dev/null 19 build --dkmstree ") for line in asked)
    assert all(f" --sourcetree {host.folder}/" in line for line in asked)
    assert all(" -m nvidia -v 580.178.04 " in line for line in asked)
    assert list(host.folder.iterdir()) == []


def test_a_module_that_does_not_build_stops_the_host_with_the_compilers_words(host):
    host.dkms(10)

    with pytest.raises(calls.Refused) as refused:
        trial.try_out(Host(), ORDER, MOVES, FACTS)
    words = str(refused.value)
    assert f"DKMS cannot build nvidia 580.178.04 for kernel {KERNELS[0]}, so no planned package was installed" in words
    assert "the host was not drained: nv.c:7:1: error: no member named vm_flags" in words
    assert list(host.folder.iterdir()) == []


def test_a_build_that_takes_too_long_is_left_to_the_installation(host):
    host.dkms(124)

    assert trial.try_out(Host(), ORDER, MOVES, FACTS) == "it was not ready after 3000 s"
    assert list(host.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("order", "facts", "reason"),
    [
        ({**ORDER, "compilers": ["g++-12"]}, FACTS, "g++-12 is not installed yet"),
        (ORDER, {**FACTS, "headers": KERNELS[1:]}, f"the headers of kernel {KERNELS[0]} are not installed yet"),
    ],
)
def test_what_cannot_be_built_yet_is_said_and_stops_nothing(host, order, facts, reason):
    assert trial.try_out(Host(), order, MOVES, facts) == reason


def test_a_host_without_dkms_room_or_package_files_is_no_failure(host, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SPACE_BYTES", 1 << 60)
    assert "has less than" in trial.try_out(Host(), ORDER, MOVES, FACTS)
    monkeypatch.setattr(trial, "SPACE_BYTES", 0)
    script(tmp_path / "bin/dpkg-deb", "#!/bin/sh\necho damaged >&2\nexit 2\n")
    assert "_amd64.deb cannot be unpacked: damaged" in trial.try_out(Host(), ORDER, MOVES, FACTS)
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    assert trial.try_out(Host(), ORDER, MOVES, FACTS) == "no package file on the host has its sources"
    monkeypatch.setenv("PATH", "/nowhere")
    assert trial.try_out(Host(), ORDER, MOVES, FACTS) == "DKMS is not installed yet"


def test_a_transaction_without_sources_builds_nothing(host, tmp_path):
    rows = [row for row in MOVES if row[0] == "remove" or row[1] in ("dkms", "nvidia-fs-dkms")]

    assert (
        trial.try_out(Host(), ORDER, [*rows, Move("install", "linux-modules-nvidia-580-generic", "", "1")], FACTS) == ""
    )
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("found", "file"),
    [
        ({"nvidia-dkms-580": "1:580.1-1"}, "cache/nvidia-dkms-580_1%3a580.1-1_amd64.deb"),
        ({"kmod-nvidia-open-dkms": "3:580.1-1.el9"}, "repo/packages/kmod-nvidia-open-dkms-580.1-1.el9.noarch.rpm"),
        ({"nvidia-dkms-580": "580.2-1"}, "bundle/a/b/nvidia-dkms-580_580.2-1_amd64.deb"),
        ({"nvidia-dkms-570": "570.2-1"}, "kept/previous/nvidia-dkms-570_570.2-1_amd64.deb"),
    ],
)
def test_package_files_lie_in_the_cache_in_the_bundle_or_were_kept(tmp_path, monkeypatch, found, file):
    monkeypatch.setattr(kept, "CACHES", (str(tmp_path / "cache/*.deb"), str(tmp_path / "*/packages/*.rpm")))
    monkeypatch.setattr(kept, "FOLDER", str(tmp_path / "kept"))
    monkeypatch.setattr(trial, "BUNDLE_PLACE", str(tmp_path / "bundle"))
    for name in [file, "cache/nvidia-dkms-580_570.1-1_amd64.deb"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert trial.package_files(found) == [str(tmp_path / file)]


CONFIGURATION = """PACKAGE_NAME="nvidia"
PACKAGE_VERSION="580.178.04"
MAKE[0]="{make}"
CLEAN="true"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates"
AUTOINSTALL=yes
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("make", "words"),
    [
        ("echo built; cp dkms.conf nvidia.ko", None),
        ("echo 'nv.c: error: no such member'; false", "for kernel 5.15.0-179-generic, .*nv.c: error: no such member"),
    ],
)
def test_dkms_itself_builds_in_that_folder_alone(host, tmp_path, monkeypatch, make, words):
    """Debian's DKMS, unpacked and not installed; the headers of a kernel that is not there are an empty directory."""
    place = tmp_path / "dkms"
    place.mkdir()
    done = subprocess.run(["apt-get", "download", "dkms"], cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"dkms cannot be had here: {done.stderr}")
    (package,) = place.glob("*.deb")
    subprocess.run(["/usr/bin/dpkg-deb", "-x", package, place], check=True)
    (place / "headers/include").mkdir(parents=True)
    wrapper = f'#!/bin/sh\nexec bash {place}/usr/sbin/dkms "$@" --kernelsourcedir {place}/headers\n'
    script(tmp_path / "bin/dkms", wrapper)
    script(tmp_path / "bin/strip", "#!/bin/sh\n")
    conf = tmp_path / "dkms.conf"
    conf.write_text(CONFIGURATION.format(make=make))
    source = "$3/usr/src/nvidia-580.178.04"
    script(tmp_path / "bin/dpkg-deb", f"#!/bin/sh\nmkdir -p {source}\ncp {conf} {source}\n: >{source}/nv.c\n")
    before = Path("/var/lib/dkms").exists()

    if words:
        with pytest.raises(calls.Refused, match=words):
            trial.try_out(Host(), ORDER, MOVES, FACTS)
    else:
        assert trial.try_out(Host(), ORDER, MOVES, FACTS) == ""
    assert list(host.folder.iterdir()) == []
    assert Path("/var/lib/dkms").exists() == before
