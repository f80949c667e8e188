"""Facts: what was asked, what came back, and what nobody asked."""

import msgspec
import pytest

from gpucheck.model import Limits, NotRecorded, PackageVersion
from gpucheck.model.facts import Facts
from tests.fakes import facts

ASKED = Facts(
    limits=Limits(),
    packages={"imex": None, "driver": PackageVersion(name="driver", version="580")},
    texts={"/proc/cmdline": None},
    library_names=("libcudart",),
)


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        (("limits", "package:imex", "package:driver", "text:/proc/cmdline", "library:libcudart"), []),
        (("nvml", "simulation"), ["nvml", "simulation"]),
        (("package:other", "text:/etc/x", "library:libnccl"), ["package:other", "text:/etc/x", "library:libnccl"]),
        (("folder:/dev", "service:a", "python:torch"), ["folder:/dev", "service:a", "python:torch"]),
    ],
)
def test_an_answer_that_something_is_not_there_is_an_answer(needs, missing):
    assert ASKED.missing(needs) == missing


def test_a_database_that_cannot_be_read_is_an_answer_about_every_package():
    unreadable = Facts(packages=None)

    assert unreadable.missing(["package:imex"]) == []
    assert unreadable.installed(["imex"]) == ()


def test_only_installed_packages_are_returned():
    """One that was not asked for is not "not installed"."""
    assert [package.name for package in ASKED.installed(["imex", "driver"])] == ["driver"]
    with pytest.raises(KeyError, match="other"):
        ASKED.installed(["driver", "other"])


@pytest.mark.parametrize(("need", "words"), [("nvml", "contain nvml"), ("text:/x", "file /x"), ("python:a", "Python")])
def test_what_was_not_asked_is_named(need, words):
    with pytest.raises(NotRecorded, match=words):
        ASKED.read("limits", need)


def test_json_keeps_what_was_asked_apart_from_what_was_not():
    again = msgspec.json.decode(msgspec.json.encode(ASKED), type=Facts)

    assert again == ASKED
    assert again.missing(["limits", "nvml"]) == ["nvml"]


def test_a_host_of_tests_was_asked_everything():
    """So that a test states only what its host has."""
    host = facts(files={"/a": "b"})

    assert host.read("nvml", "text:/a", "text:/c", "service:x", "package:y", "library:z", "folder:/f") is host
    assert (host.texts["/a"], host.texts["/c"]) == ("b", None)
