"""Files fetched from a host that chose their names and sends what it likes: nothing leaves the directory here."""

import os
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleError
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import action
from tests.playbooks.modules import plugin as load

plugin = action("fetch_files")
sender = action("send_files")
names = load("plugin_utils", "files")

HOSTILE = [
    "../../../../../../evil/PWNED-fetch",
    "/etc/cron.d/PWNED",
    "..",
    ".",
    "",
    "packages/../../x",
    "packages/..",
    "packages//x",
    "packages/",
    "/",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "a b",
    "-oProxyCommand=x",
    "packages/-x",
    ".ssh/authorized_keys2",
    "x\\..\\y",
    "\u202ecod.deb",
    "x" * 256,
    "/".join("x" * 9),
    "~/x",
    "$(id)",
]


class Connection:
    """A host that sends one byte for each file, or .content."""

    content = b"x"
    _shell = SimpleNamespace(join_path=os.path.join)

    def __init__(self):
        self.fetched = []

    def fetch_file(self, source, target):
        self.fetched.append(target)
        Path(target).write_bytes(self.content)


@pytest.fixture
def fetch(tmp_path, monkeypatch):
    """Run the action; returns (answer, connection)."""
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_, **__: {})

    def run(files, connection=None, **more):
        one = object.__new__(plugin.ActionModule)
        one._connection = connection or Connection()
        arguments = {"src": "/var/tmp/x", "dest": str(tmp_path / "dest"), "files": files, "largest_bytes": 1 << 20}
        arguments["sizes"] = {}
        one.validate_argument_spec = lambda spec: (None, {**arguments, **more})
        return one.run(), one._connection

    return run


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_out_is_refused_before_anything_is_fetched(fetch, tmp_path, name):
    answer, connection = fetch(["packages/good.deb", name])

    assert answer["failed"] is True
    assert "nothing was fetched" in answer["msg"]
    assert "\n" not in answer["msg"]
    assert "\x1b" not in answer["msg"]
    assert connection.fetched == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# A host's answer was once such a path; sftp reads it as a command, or as another file.
REMOTE = [
    *(
        "/tmp/a\n!id\n",
        "/tmp/a\\'\"\n!id\n",
        "/tmp/a\\'\" /root/x #",
        "/tmp/$(id)",
        "/tmp/a b",
        "/tmp/*",
        "/tmp/{{ x }}",
    ),
    *("-oProxyCommand=id", "relative", "~/x", "/tmp/../etc", "/tmp//x", "/tmp/", "", "/tmp/\u2028", "/" + "x" * 2000),
]


@pytest.mark.parametrize("path", REMOTE)
def test_a_remote_path_that_is_not_plain_is_refused_in_both_directions(fetch, monkeypatch, tmp_path, path):
    answer, connection = fetch(["a.deb"], src=path)

    assert "not a plain absolute path of a host" in answer["msg"]
    assert "\n" not in answer["msg"]
    assert connection.fetched == []
    assert "not a plain absolute path of a host" in send(monkeypatch, path, {"/x/a.deb": "a.deb"})["msg"]


@pytest.mark.parametrize("name", [*HOSTILE, "a/b"])
def test_a_name_that_is_not_plain_is_not_sent(monkeypatch, name):
    answer = send(monkeypatch, "/var/tmp/x", {"/x/a.deb": "a.deb", "/x/b.deb": name})

    assert answer["failed"]
    assert "Nothing was sent" in answer["msg"]


def send(monkeypatch, dest, files):
    """The answer of send_files over a connection that cannot be used."""
    monkeypatch.setattr(sender.ActionBase, "run", lambda *_, **__: {})
    one = object.__new__(sender.ActionModule)
    one._connection = None
    one.validate_argument_spec = lambda spec: (None, {"dest": dest, "files": files})
    return one.run()


@pytest.mark.parametrize(
    "name", ["libc6_2.36-9+deb12u9_amd64.deb", "a-3:1.0~rc1^2.el9.rpm", "modules/cuda-modules.yaml"]
)
def test_names_of_packages_and_modules_are_fetched(fetch, tmp_path, name):
    answer, _ = fetch([f"packages/{name}"])

    assert answer == {"changed": False}
    assert (tmp_path / "dest/packages" / name).read_bytes() == b"x"


def test_a_symbolic_link_in_the_way_is_refused(fetch, tmp_path):
    (tmp_path / "dest").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dest/packages").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dest/file.deb").symlink_to(tmp_path / "elsewhere/file")

    for name in ("packages/x.deb", "file.deb"):
        answer, connection = fetch([name])
        assert "symbolic link" in answer["msg"]
        assert connection.fetched == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"largest_bytes": 1000}, "larger than 300 bytes, the limit for all files"),
        ({"sizes": {"a.deb": 700, "b.deb": 3}}, "larger than 3 bytes, what the host stated"),
        ({"sizes": {"b.deb": 0}}, "larger than 0 bytes, what the host stated"),
    ],
)
def test_a_host_that_sends_too_much_is_cut_off_and_the_limits_go_again(fetch, tmp_path, more, words):
    connection = Connection()
    connection.content = b"x" * 700
    before = [resource.getrlimit(which) for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)]

    answer, _ = fetch(["a.deb", "b.deb"], connection, **more)

    assert answer["failed"] is True
    assert answer["msg"] == f"b.deb cannot be fetched: {words}"
    assert [path.name for path in (tmp_path / "dest").iterdir()] == ["a.deb"]
    assert [resource.getrlimit(which) for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)] == before


def test_a_gib_of_the_controllers_disk_stays_free(fetch, monkeypatch, tmp_path):
    monkeypatch.setattr(plugin.shutil, "disk_usage", lambda _: SimpleNamespace(free=plugin.RESERVE_BYTES + 2))
    connection = Connection()
    connection.content = b"deb"

    answer, _ = fetch(["a.deb"], connection, sizes={"a.deb": 3})

    assert answer["msg"] == "a.deb cannot be fetched: larger than 2 bytes, what the controller has free"
    assert list((tmp_path / "dest").iterdir()) == []


class InMemory(Connection):
    """As Ansible's piped transfer: the whole file, then the disk."""

    def fetch_file(self, source, target):
        Path(target).write_bytes(bytes(plugin.MEMORY_BYTES * 2))


def test_a_host_cannot_fill_the_memory_of_the_controller(fetch, tmp_path):
    answer, _ = fetch(["a.deb"], InMemory(), sizes={"a.deb": 3})

    assert answer["msg"] == "a.deb cannot be fetched: larger than 3 bytes, what the host stated"
    assert list((tmp_path / "dest").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o200])
def test_a_host_does_not_choose_the_mode_of_a_file(fetch, tmp_path, mode):
    """sftp and scp take it from the host."""

    class Modes(Connection):
        def fetch_file(self, source, target):
            super().fetch_file(source, target)
            Path(target).chmod(mode)

    assert fetch(["a.deb"], Modes())[0] == {"changed": False}
    assert (tmp_path / "dest/a.deb").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("size", [-1, "3", 1.5, True, [3]])
def test_what_is_no_size_is_refused_before_anything_is_fetched(fetch, size):
    answer, connection = fetch(["a.deb"], sizes={"a.deb": size})

    assert "is not a size" in answer["msg"]
    assert connection.fetched == []


def test_too_many_names_are_refused(fetch):
    answer, connection = fetch([f"{number}.deb" for number in range(plugin.MOST_FILES + 1)])

    assert "at most" in answer["msg"]
    assert connection.fetched == []


def test_a_transfer_that_fails_is_one_message(fetch, monkeypatch):
    class Broken(Connection):
        def fetch_file(self, source, target):
            raise AnsibleError("connection lost")

    assert fetch(["a.deb"], Broken())[0]["msg"] == "a.deb cannot be fetched: connection lost"
    monkeypatch.setattr(plugin.os, "makedirs", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert "No space left" in fetch(["a.deb"])[0]["msg"]


@given(st.text(st.sampled_from("./\\\0\na-~"), max_size=30))
def test_no_name_resolves_outside(tmp_path_factory, name):
    top = tmp_path_factory.getbasetemp() / "top"
    top.mkdir(exist_ok=True)
    try:
        path = names.inside(str(top), name)
    except names.Outside:
        return
    assert Path(path).resolve().is_relative_to(top.resolve())
    assert path != str(top.resolve())


def test_the_local_connection_of_ansible_is_held_to_the_limit_too(tmp_path):
    """It copies in this process; the limit of the operating system holds there as well."""
    (tmp_path / "big").write_bytes(bytes(plugin.SMALL_BYTES * 5))
    with plugin.nothing_beyond(1000), pytest.raises(OSError, match="File too large"):
        shutil.copyfile(tmp_path / "big", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size <= plugin.SMALL_BYTES
