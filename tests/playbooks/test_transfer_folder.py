"""The private folder of a transfer: the controller names it, and what a killed run left is removed."""

import os
import time

import pytest

from tests.playbooks.modules import action, answer_of, module
from tests.playbooks.stubs import mode

code = module("transfer_folder")
plugin = action("transfer_folder")


def test_it_is_private_and_new(tmp_path):
    path = tmp_path / "gpucheck-transfer-1"

    assert answer_of(code, {"path": str(path)}) == {"failed": False, "changed": True}
    assert mode(path) == 0o700
    assert "File exists" in answer_of(code, {"path": str(path)})["msg"]


def test_a_link_of_that_name_is_neither_used_nor_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").touch()
    path = tmp_path / "gpucheck-transfer-1"
    path.symlink_to(tmp_path / "elsewhere")

    assert "cannot be created" in answer_of(code, {"path": str(path)})["msg"]
    assert "cannot be removed" in answer_of(code, {"path": str(path), "state": "absent"})["msg"]
    assert (tmp_path / "elsewhere/file").exists()


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path):
    old = time.time() - 2 * code.DAY_S
    for name in ("gpucheck-transfer-old", "gpucheck-transfer-new", "other"):
        (tmp_path / name / "packages").mkdir(parents=True)
    (tmp_path / "gpucheck-transfer-link").symlink_to(tmp_path / "other")
    for name in ("gpucheck-transfer-old", "other"):
        os.utime(tmp_path / name, (old, old))

    answer_of(code, {"path": str(tmp_path / "gpucheck-transfer-1")})

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["gpucheck-transfer-1", "gpucheck-transfer-link", "gpucheck-transfer-new", "other"]
    assert (tmp_path / "other/packages").is_dir()


def test_it_is_removed_with_its_content(tmp_path):
    path = tmp_path / "gpucheck-transfer-1"
    (path / "packages").mkdir(parents=True)
    (path / "packages/a.deb").touch()

    assert answer_of(code, {"path": str(path), "state": "absent"})["changed"]
    assert not path.exists()


@pytest.fixture
def chosen(monkeypatch):
    """Run the action on a host that answers what it is given; (answer, paths that it was asked for)."""
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_, **__: {})
    monkeypatch.setattr(plugin.node_result, "received", lambda action, result, host: result)

    def run(answer, **arguments):
        asked = []
        one = object.__new__(plugin.ActionModule)
        one.validate_argument_spec = lambda spec: (None, {"state": "present", "path": None, **arguments})
        one._execute_module = lambda module_args, task_vars: asked.append(module_args["path"]) or answer
        return one.run(task_vars={"inventory_hostname": "n1"}), asked

    return run


def test_the_controller_chooses_the_name_whatever_the_host_answers(chosen):
    answer, asked = chosen({"changed": True, "path": "/tmp/a\n!id\n"}, path="/given/is/not/used")

    assert answer == {"changed": True, "path": asked[0]}
    assert plugin.files.remote(asked[0]).startswith("/var/tmp/gpucheck-transfer-")
    assert chosen({"changed": True})[1] != asked
    assert "path" not in chosen({"failed": True})[0]


def test_only_a_plain_path_is_removed(chosen):
    answer, asked = chosen({}, state="absent", path="/var/tmp/../../etc")

    assert answer["failed"]
    assert "not a plain absolute path" in answer["msg"]
    assert asked == []
