"""What a host collects for a bundle: the same from a bare host and a provisioned one."""

import json
import os
import shutil
import subprocess

import pytest

from gpucheck.bundle import contents
from tests.playbooks.modules import action, module, shared

bundle = shared("bundle")
record = shared("record")
folder_module = module("bundle_folder")

# name: needs. gcc was there, dkms came with us, site-tool needs dkms, nvidia is planned.
NEEDS = {"libc6": set(), "gcc": {"libc6"}, "dkms": {"gcc"}, "site-tool": {"dkms"}, "nvidia": {"dkms"}, "vim": {"libc6"}}


@pytest.fixture
def provisioned(monkeypatch, tmp_path):
    """A host where dkms and nvidia came with us."""
    monkeypatch.setattr(record, "relations", lambda family: (NEEDS, {name: {name} for name in NEEDS}))
    (tmp_path / "installed.json").write_text(json.dumps({"added": ["dkms", "nvidia"]}))
    monkeypatch.setattr(record, "INSTALLED", str(tmp_path / "installed.json"))
    monkeypatch.setattr(record, "TRANSACTION", str(tmp_path / "none"))
    return dict.fromkeys(NEEDS, "1")


def test_what_came_with_us_counts_as_not_there_nor_does_what_needs_it(provisioned):
    assert bundle.not_there(["nvidia"], provisioned, "dpkg") == {"dkms", "nvidia", "site-tool"}


def test_a_planned_package_is_collected_although_it_was_there_before_us(provisioned):
    assert "gcc" in bundle.not_there(["gcc", "libnew"], provisioned, "dpkg")
    assert "libc6" not in bundle.not_there(["gcc"], provisioned, "dpkg")


def test_the_status_that_apt_resolves_on_lacks_exactly_those(monkeypatch, tmp_path):
    (tmp_path / "status").write_text("".join(f"Package: {name}\nStatus: install ok installed\n\n" for name in NEEDS))
    monkeypatch.setattr(bundle, "STATUS", str(tmp_path / "status"))
    kept = bundle.status_without({"dkms", "nvidia"})

    assert [line.split()[1] for line in kept.splitlines() if line.startswith("Package:")] == [
        "libc6", "gcc", "site-tool", "vim",
    ]  # fmt: skip
    assert kept.endswith("installed\n\n")


REQUEST = {
    "repositories": [{"name": "nvidia-cuda", "url": "http://mirror/cuda/", "suite": "/", "kind": "apt"}],
    "files": [
        {"path": "/etc/apt/preferences.d/gpucheck-nvidia", "content": "Pin: version 580*\n"},
        {"path": "/etc/profile.d/gpucheck-cuda.sh", "content": "x\n"},
    ],
}


def test_apt_sees_the_hosts_sources_and_the_plans_but_none_that_provisioning_wrote(monkeypatch, tmp_path):
    """The source of another bundle is gone one day, and ours would be named twice with different keys."""
    etc, work = tmp_path / "etc", tmp_path / "work"
    (etc / "sources.list.d").mkdir(parents=True)
    (etc / "preferences.d").mkdir()
    (etc / "sources.list").write_text("deb http://archive jammy main\n")
    for name in ("site.list", "site.sources", "nvidia-cuda.list", "gpucheck-bundle.list", "old.list.save"):
        (etc / "sources.list.d" / name).write_text(f"# {name}\n")
    monkeypatch.setattr(bundle, "ETC", str(etc))
    options = bundle.prepare_apt(
        str(work), {**REQUEST, "files": [{**REQUEST["files"][0], "path": f"{etc}/preferences.d/p"}]}, ""
    )

    assert sorted(path.name for path in (work / "sources").iterdir()) == [
        "nvidia-cuda.list",
        "site.list",
        "site.sources",
    ]
    line = f"deb [signed-by={work}/keys/nvidia-cuda.gpg] http://mirror/cuda/ /\n"
    assert (work / "sources/nvidia-cuda.list").read_text() == line
    assert (work / "preferences/p").read_text() == "Pin: version 580*\n"
    places = [word.split("=")[1] for word in options if word.startswith("Dir::")]
    assert len(places) == 8
    assert all(place.startswith(str(work)) for place in places)


@pytest.mark.skipif(not shutil.which("apt-config"), reason="apt is not installed")
def test_no_hook_of_the_host_runs_when_lists_are_read(tmp_path, monkeypatch):
    """As apt itself sees it."""
    (tmp_path / "preferences.d").mkdir()
    monkeypatch.setattr(bundle, "ETC", str(tmp_path))
    (tmp_path / "hooks").write_text(
        'APT::Update::Post-Invoke {"touch /a"; };\nAPT::Update::Post-Invoke-Success {"b";};\n'
    )
    options = bundle.prepare_apt(str(tmp_path / "work"), {"repositories": [], "files": []}, "")
    words = ["apt-config", "-c", str(tmp_path / "hooks"), *options, "dump"]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout

    assert "Invoke::" not in "".join(line for line in told.splitlines() if line.startswith("APT::Update::"))
    assert f'Dir::State::lists "{tmp_path}/work/lists";' in told


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("nvidia-driver-cuda-3:580.178.04-1.el9", "nvidia-driver-cuda"),
        ("libnccl-2.29.3-1+cuda12.9", "libnccl"),
        ("dkms", "dkms"),
        ("not-installed-1-1", "not-installed-1-1"),
    ],
)
def test_a_spec_is_traced_to_the_package_that_it_names(spec, name):
    installed = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "nvidia-driver": "1", "libnccl": "2", "dkms": "3"}

    assert bundle.wanted_name(spec, installed) == name


def test_an_interpreter_that_is_not_there_yet_is_told_by_its_name():
    assert bundle.interpreter("/nowhere/python3.11")["version"] == "3.11"
    assert bundle.interpreter("python3")["version"].startswith("3.")
    with pytest.raises(bundle.Unreadable, match="its name does not contain its version"):
        bundle.interpreter("/nowhere/python")


def test_a_host_that_stays_at_a_minor_release_collects_from_that_one(tmp_path, monkeypatch):
    """Packages of the newest one need its C library, which the hosts of the bundle do not have."""
    monkeypatch.setattr(bundle, "VARIABLES", (str(tmp_path / "dnf"), str(tmp_path / "yum")))
    monkeypatch.setattr(bundle, "os_release", lambda: {"VERSION_ID": "9.4"})
    assert bundle.releasever() == "9"

    (tmp_path / "yum").mkdir()
    (tmp_path / "yum/releasever").write_text("9.4\n")
    assert bundle.releasever() == "9.4"


def row(content: bytes) -> dict[str, object]:
    """A file's entry of the manifest."""
    import hashlib

    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


@pytest.fixture
def kept(tmp_path):
    """(the host's folder, a folder where files have arrived)."""
    (tmp_path / "arrived").mkdir()
    return tmp_path / "bundle", tmp_path / "arrived"


FILES = {
    "key.asc": row(b"key"),
    "packages/a.deb": row(b"a"),
    "packages/repodata/r.xml": row(b"r"),
    "wheels/w.whl": row(b"a"),
}


def test_what_has_arrived_is_taken_over_and_nothing_else_stays(kept):
    folder, arrived = kept
    (folder / "packages").mkdir(parents=True)
    (folder / "packages/old.deb").write_bytes(b"of another bundle")
    for path, content in {
        "key.asc": b"key",
        "packages/a.deb": b"a",
        "packages/repodata/r.xml": b"r",
        "wheels/w.whl": b"a",
    }.items():
        (arrived / path.replace("/", ":")).write_bytes(content)

    assert folder_module.missing(str(folder), FILES) == sorted(FILES)
    assert folder_module.take(str(folder), FILES, str(arrived)) is True
    assert folder_module.missing(str(folder), FILES) == []
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == set(FILES)
    assert folder_module.take(str(folder), FILES, str(arrived)) is False


@pytest.mark.parametrize("arrival", [b"b", b"aa", b"", "fifo", "directory", "growing", "link"])
def test_what_is_not_the_file_that_was_signed_is_never_put_in_its_place(kept, tmp_path, arrival):
    folder, arrived = kept
    staged, secret = arrived / "packages:a.deb", tmp_path / "secret"
    secret.write_bytes(b"a")
    secret.chmod(0o600)
    if arrival == "fifo":
        os.mkfifo(staged)
    elif arrival == "directory":
        staged.mkdir()
    elif arrival == "link":
        staged.symlink_to(secret)
    else:
        with staged.open("wb") as file:
            file.truncate(1 << 40) if arrival == "growing" else file.write(arrival)
    folder_module.take(str(folder), FILES, str(arrived))

    assert "packages/a.deb" in folder_module.missing(str(folder), FILES)
    assert not [path for path in folder.rglob("*") if not path.is_dir()]
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_login_that_keeps_a_file_open_writes_to_no_accepted_one(kept):
    """It opened the file before it was checked, and writes afterwards."""
    folder, arrived = kept
    with (arrived / "packages:a.deb").open("wb", buffering=0) as held:
        held.write(b"a")
        folder_module.take(str(folder), FILES, str(arrived))
        held.seek(0)
        held.write(b"EVIL")

    assert (folder / "packages/a.deb").read_bytes() == b"a"
    assert (folder / "packages/a.deb").stat().st_mode & 0o777 == 0o644
    assert not (arrived / "packages:a.deb").exists()


def test_a_link_in_place_of_the_arrival_folder_is_not_followed(kept, tmp_path):
    """Files there would be removed as root: key.asc is in every bundle."""
    folder, arrived = kept
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/key.asc").write_bytes(b"key")
    arrived.rmdir()
    arrived.symlink_to(tmp_path / "etc")

    with pytest.raises(OSError, match=str(arrived)):
        folder_module.take(str(folder), FILES, str(arrived))
    assert (tmp_path / "etc/key.asc").read_bytes() == b"key"


@pytest.mark.parametrize(
    ("recorded", "made", "later"),
    [
        (None, "2026-10-01T00:00:00+00:00", ""),
        ("2026-10-01T00:00:00+00:00", "2026-10-01T00:00:00+00:00", ""),
        ("2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00", ""),
        ("2026-11-01T00:00:00+00:00", "2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00"),
    ],
)
def test_a_host_knows_a_bundle_that_is_older_than_its_own(kept, recorded, made, later):
    folder, _ = kept
    folder.mkdir()
    if recorded:
        (folder / "made").write_text(recorded)

    assert folder_module.newer(str(folder), made) == later


def test_apt_and_dnf_are_led_to_the_bundle_alone(kept):
    folder, _ = kept
    folder_module.guides(str(folder))
    folder_module.guides(str(folder))

    assert f'Dir::State::lists "{folder}/lists";' in (folder / "apt.conf").read_text()
    assert 'sourcelist "/etc/apt/sources.list.d/gpucheck-bundle.list"' in (folder / "apt.conf").read_text()
    assert 'sourceparts "-"' in (folder / "apt.conf").read_text()
    assert (folder / "bin/dnf").stat().st_mode & 0o777 == 0o755
    assert f"--setopt=reposdir={folder}/repos" in (folder / "bin/dnf").read_text()
    assert (folder / "repos/gpucheck-bundle.repo").readlink().as_posix() == "/etc/yum.repos.d/gpucheck-bundle.repo"


def test_plan_playbooks_and_hosts_mean_the_same_place_and_name():
    """The plan names the folder, the playbooks fill it."""
    import yaml

    from tests.playbooks.modules import PLAYBOOKS

    assert bundle.BUNDLE == action("stack_plans").BUNDLE == contents.NAME
    assert shared("host_plan").BUNDLE_PLACE == contents.HOST_FOLDER
    assert yaml.safe_load((PLAYBOOKS / "vars/controller.yml").read_text())["bundle_place"] == contents.HOST_FOLDER
    assert f"'{contents.NAME}'" in (PLAYBOOKS / "tasks/rollout.yml").read_text()
