"""Package files that stay for a rollback: those of the installed set and of the one before, as far as there is room."""

import json
from collections import namedtuple

import pytest

from tests.playbooks.modules import shared

kept, host_plan, record = shared("kept"), shared("host_plan"), shared("record")
OLD = {"nvidia-x": "580.95.05-0ubuntu1", "nvidia-firmware-580.95.05": "580.95.05-0ubuntu1", "cuda-y": "1:12-1"}
NEW = {"nvidia-x": "580.178.04-1ubuntu1", "nvidia-firmware-580.178.04": "580.178.04-1ubuntu1", "cuda-y": "1:12-1"}


def file_of(name, version):
    return "{}_{}_amd64.deb".format(name, version.replace(":", "%3a"))


class Host:
    """A host's folders: .cache is apt's, .folder is ours."""

    def __init__(self, folder, monkeypatch):
        self.cache, self.folder = folder / "archives", folder / "packages"
        self.cache.mkdir()
        (folder / "lock").touch()
        monkeypatch.setattr(kept, "CACHES", (f"{self.cache}/*.deb", f"{folder}/dnf/*/packages/*.rpm"))
        monkeypatch.setattr(kept, "FOLDER", str(self.folder))
        monkeypatch.setattr(host_plan, "STACK_FILE", str(folder / "stack.json"))
        monkeypatch.setattr(record, "PREVIOUS", str(folder / "previous.json"))
        self.room(1 << 40)

    def room(self, free):
        kept.shutil.disk_usage = lambda _: namedtuple("Usage", "free")(free)  # noqa: PYI024 - as shutil's

    def installs(self, packages, other_set, most=1 << 40, size=10):
        """Download, install and record a set."""
        for name, version in packages.items():
            if not list(self.folder.glob(f"*/{file_of(name, version)}")):
                (self.cache / file_of(name, version)).write_text("x" * size)
        kept.keep(set(packages), {"bash": "5", **packages}, other_set, most)

    def has(self, part):
        return sorted(path.name for path in (self.folder / part).iterdir())


@pytest.fixture
def host(tmp_path, monkeypatch):
    disk_usage = kept.shutil.disk_usage
    yield Host(tmp_path, monkeypatch)
    kept.shutil.disk_usage = disk_usage


def names(packages):
    return sorted(file_of(*row) for row in packages.items())


def test_the_files_of_a_set_stay_while_it_is_the_installed_one_or_the_one_before(host):
    (host.cache / "bash_5_amd64.deb").touch()
    host.installs(OLD, False)
    assert (host.has("current"), host.has("previous")) == (names(OLD), [])
    host.installs(NEW, True)
    assert (host.has("current"), host.has("previous")) == (names(NEW), names(OLD))
    # A run that changes nothing of the set, and the way back.
    host.installs(NEW, False)
    host.installs(OLD, True)
    assert (host.has("current"), host.has("previous")) == (names(OLD), names(NEW))
    host.installs({"nvidia-x": "590-1"}, True)
    assert (host.has("current"), host.has("previous")) == (["nvidia-x_590-1_amd64.deb"], names(OLD))
    assert [path.name for path in host.cache.iterdir()] == ["bash_5_amd64.deb"]


@pytest.mark.parametrize(("most", "free", "left"), [(40, 1 << 40, 4), (39, 1 << 40, 3), (1 << 40, 10, 1), (0, 99, 0)])
def test_what_is_kept_has_a_bound(host, most, free, left):
    """The two sets have five files of ten bytes; one is in both and counts once. A third of the free space at most."""
    host.installs(OLD, False)
    host.room(free)
    host.installs(NEW, True, most)

    assert len({*host.has("current"), *host.has("previous")}) == left


def test_the_kept_files_of_a_plan_replace_its_names(host, tmp_path):
    rows = [{"name": "nvidia-x", "version": OLD["nvidia-x"], "spec": "nvidia-x=580.95.05-0ubuntu1"}]
    rows += [{"name": "libnccl2", "version": "2-1", "spec": "libnccl2=2-1"}]
    plan = {"components": {"driver": {"packages": rows}}}
    specs = [*(row["spec"] for row in rows), "linux-headers-6"]
    host.installs(OLD, False)
    host.installs(NEW, True)

    assert kept.in_place_of(specs, plan, NEW) == specs
    (tmp_path / "previous.json").write_text(json.dumps(plan))
    folder = host.folder / "previous"
    # What came along with the driver is named too. What is installed in that version already is not.
    files = [str(folder / file_of(name, OLD[name])) for name in ("nvidia-x", "nvidia-firmware-580.95.05")]
    assert kept.in_place_of(specs, plan, NEW) == [files[0], "libnccl2=2-1", "linux-headers-6", files[1]]
    assert kept.in_place_of(["libnccl2=2-1"], plan, NEW) == ["libnccl2=2-1"]
    # Planned without a version, as what pins the driver: its name has it.
    pin = {"components": {"driver": {"packages": [{"name": "cuda-y", "version": None, "spec": "cuda-y"}]}}}
    (tmp_path / "previous.json").write_text(json.dumps(pin))
    assert kept.in_place_of(["cuda-y"], pin, NEW)[0] == str(folder / file_of("cuda-y", OLD["cuda-y"]))
