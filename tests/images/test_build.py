"""Building: which base, what reaches the build, when nothing is done, and what is said when it cannot be."""

import io
import json
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
from msgspec.structs import replace

from gpucheck.images import build as building
from gpucheck.images import context, wheels
from gpucheck.images.build import SBOM, Options, build, plan_of
from gpucheck.images.context import Plan, assemble, command_line, commit
from gpucheck.images.versions import read_versions
from gpucheck.images.wheels import ensure_wheels, index_options
from gpucheck.lab.errors import LabError
from tests.lab.fake_docker import FakeNetwork

ROOT = Path(__file__).parents[2]
VERSIONS = read_versions(ROOT)


class Engine:
    """A Docker engine of values: what it builds it remembers, and what it is asked is written down."""

    def __init__(self, api="1.41", size=10**9):
        self.made = {}
        self.calls = []
        self.pulled = None
        self.size = size
        self.api = api
        self.networks = SimpleNamespace(get=lambda _name: FakeNetwork("bridge", "127.0.0.0/8", gateway="127.0.0.1"))
        self.images = SimpleNamespace(
            build=self.build, get=self.get, prune=self.prune, pull=self.pull, list=lambda **_: [1]
        )
        self.containers = SimpleNamespace(create=self.create, run=lambda *_, **__: b"900\t/opt\n1000\t/\n")

    def version(self):
        return {"ApiVersion": self.api, "Version": "1.0"}

    def build(self, **options):
        self.calls.append(options)
        self.made[options["tag"]] = SimpleNamespace(labels=options["labels"], attrs={"Size": self.size})

    def get(self, tag):
        if tag not in self.made:
            raise docker.errors.ImageNotFound(tag)
        return self.made[tag]

    def prune(self, filters):
        assert filters == {"dangling": True, "label": "gpucheck.images"}

    def pull(self, name, tag):
        self.pulled = f"{name}@{tag}"
        if isinstance(self.size, Exception):
            raise self.size

    def create(self, _tag, **_options):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(Path(SBOM).name)
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"{}"))
        return SimpleNamespace(get_archive=lambda _path: ([buffer.getvalue()], None), remove=lambda **_: None)


def fake_engine(**options: Any) -> Any:
    """Any, so that it passes for a docker client."""
    return Engine(**options)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout's images and nothing else; pip and the Debian archive are only asked in words."""
    for folder in ("images", "constraints.txt"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.setattr(building, "registry_answers", lambda: False)
    monkeypatch.setattr(building, "ensure_base", lambda _client: "gpucheck-lab/base:0")
    monkeypatch.setattr(building, "private_certificates", lambda: b"PEM")
    monkeypatch.setattr(building, "ensure_wheels", lambda *_: tmp_path)

    def own_wheel(_root, folder):
        wheel = folder / "gpucheck-0.1.0-py3-none-any.whl"
        if not wheel.exists():
            wheel.write_bytes(b"wheel")
        return wheel

    monkeypatch.setattr(context, "own_wheel", own_wheel)
    return tmp_path


def test_a_build_makes_both_stages_labels_the_image_and_keeps_the_sbom(root):
    engine = fake_engine()

    made = build(engine, root, "torch-cpu", Options())

    assert [call["target"] for call in engine.calls] == ["build", "runtime"]
    assert made.tag == "gpucheck/torch:2.13.0-cpu-py311-debian12"
    assert engine.calls[1]["labels"]["gpucheck.images"] == "torch-cpu"
    assert made.sbom.read_bytes() == b"{}"


def test_nothing_changed_is_nothing_built(root):
    engine = fake_engine()
    build(engine, root, "torch-cpu", Options())

    again = build(engine, root, "torch-cpu", Options())

    assert again.built is False
    assert len(engine.calls) == 2


@pytest.mark.parametrize("lost", ["wheel", "sbom"])
def test_a_changed_gpucheck_or_a_lost_sbom_is_a_build(root, lost):
    engine = fake_engine()
    made = build(engine, root, "torch-cpu", Options())
    if lost == "sbom":
        made.sbom.unlink()
    else:
        (root / ".cache/images/gpucheck-0.1.0-py3-none-any.whl").write_bytes(b"changed")

    assert build(engine, root, "torch-cpu", Options()).built is True


def test_the_build_is_told_where_things_are_and_the_ca_does_not_stay(root):
    engine = fake_engine()

    build(engine, root, "torch-cpu", Options())

    arguments = engine.calls[0]["buildargs"]
    assert arguments["BASE"] == "gpucheck-lab/base:0"
    assert arguments["WHEELS_URL"].endswith("/wheels/")
    assert "PIP_INDEX_URL" not in arguments
    assert not list((root / "build").rglob("ca.pem"))
    assert all(
        b"PEM" not in path.read_bytes() for path in (root / "build/images/torch-cpu").rglob("*") if path.is_file()
    )


def test_the_address_is_the_same_each_time_so_that_the_builders_cache_holds(root):
    first, second = fake_engine(), fake_engine()
    build(first, root, "torch-cpu", Options())
    build(second, root, "torch-cpu", Options())

    assert first.calls[0]["buildargs"] == second.calls[0]["buildargs"]


def test_a_size_over_budget_fails_with_the_largest_folders(root):
    with pytest.raises(LabError, match=r"(?s)has 9000 MB; its budget .* is 1500 MB.*/opt"):
        build(fake_engine(size=9 * 10**9), root, "torch-cpu", Options())


def test_an_old_engine_is_refused_with_what_it_lacks(root):
    with pytest.raises(LabError, match=r"engine 1\.0 is too old"):
        build(fake_engine(api="1.24"), root, "torch-cpu", Options())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (docker.errors.BuildError("exit 1", iter([{"stream": "pip: No space left on device\n"}])), "the disk is full"),
        (
            docker.errors.BuildError("exit 1", iter([{"stream": "E: Unable to locate package tini\n"}])),
            "package archive",
        ),
        (docker.errors.APIError("no such image"), "the engine refused"),
    ],
)
def test_a_failed_build_is_told_with_its_last_words(root, error, words):
    engine = fake_engine()

    def fails(**_options):
        raise error

    engine.images.build = fails

    with pytest.raises(LabError, match=words):
        build(engine, root, "torch-cpu", Options())


def test_a_registry_that_answers_gives_the_pinned_base(root, monkeypatch):
    monkeypatch.setattr(building, "registry_answers", lambda: True)
    engine = fake_engine()

    plan = plan_of(engine, root, VERSIONS, "torch-cpu", None)

    assert engine.pulled == f"ubuntu@{VERSIONS.base.digest}"
    assert (plan.stand_in, plan.base_image) == (False, VERSIONS.base.image)


def test_a_digest_that_the_registry_lost_is_said(root, monkeypatch):
    monkeypatch.setattr(building, "registry_answers", lambda: True)

    with pytest.raises(LabError, match="not in its registry"):
        plan_of(fake_engine(size=docker.errors.NotFound("manifest unknown")), root, VERSIONS, "torch-cpu", None)


def test_a_given_base_is_taken_as_it_is(root):
    plan = plan_of(fake_engine(), root, VERSIONS, "torch-cu132", "mirror.example/ubuntu:24.04")

    assert plan.arguments() == {"BASE": "mirror.example/ubuntu:24.04", "COMPILER": "gcc libc6-dev libpython3-dev"}
    assert plan.tag == "gpucheck/torch:2.15.0-cu132-py312"


def test_a_variant_without_a_lock_is_refused_with_how_to_make_it(root):
    row = VERSIONS.variants["torch-cu126"]
    unlocked = replace(VERSIONS, variants={"torch-cu126": replace(row, filled=replace(row.filled, locked=False))})

    with pytest.raises(LabError, match=r"(?s)torch-cu126 has no lock.*--update --index URL"):
        assemble(Plan(root, unlocked, "torch-cu126", VERSIONS.base, "b", stand_in=False))


def test_the_context_is_whole_and_its_promise_is_the_row(root):
    plan = plan_of(fake_engine(), root, VERSIONS, "torch-cu132", None)
    folder = assemble(plan)

    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "Dockerfile",
        "requirements.txt",
        "tools.txt",
        "image.json",
        "gpucheck-0.1.0-py3-none-any.whl",
        "build/with-ca",
        "build/apt-install",
        "build/python-environment",
        "build/gpucheck-layer",
    }
    said = json.loads((folder / "image.json").read_text())
    assert (said["cuda"], said["python"], said["stand_in_base"]) == ("13.2", "3.11", True)


def test_the_plain_command_line_carries_arguments_and_labels(root):
    plan = plan_of(fake_engine(), root, VERSIONS, "torch-cpu", None)
    assemble(plan)

    words = command_line(plan, plan.arguments())

    assert words[:4] == ["docker", "build", "--tag", plan.tag]
    assert "BASE=gpucheck-lab/base:0" in words
    assert "gpucheck.images=torch-cpu" in words
    assert words[-1] == str(plan.folder)


def test_an_origin_with_a_login_or_a_path_is_not_published(tmp_path, monkeypatch):
    answers = {"log": "abc", "config": "https://me:secret@host/r"}
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda words, **_: SimpleNamespace(returncode=0, stdout=answers[words[3]]),
    )

    assert commit(tmp_path) == {"revision": "abc", "created": "abc"}


@pytest.fixture
def pip(monkeypatch):
    calls = []
    monkeypatch.setattr(wheels, "run", lambda words, **_: calls.append([str(word) for word in words]))
    return calls


def test_wheels_are_downloaded_once_for_a_lock(root, pip):
    first = ensure_wheels(root, "torch-cpu", "3.11", ["--extra-index-url", "https://i.example"])
    again = ensure_wheels(root, "torch-cpu", "3.11", [])

    assert first == again
    assert len(pip) == 2
    assert "https://i.example" in pip[0]
    ensure_wheels(root, "torch-cpu", "3.12", [])
    assert len(pip) == 4


def test_a_wheel_that_the_index_lacks_is_downloaded_again_next_time(root, monkeypatch):
    def fails(_words, **options):
        raise LabError(f"{options['what']} failed\ndo: {options['hint']}")

    monkeypatch.setattr(wheels, "run", fails)
    with pytest.raises(LabError, match="the index lacks a wheel"):
        ensure_wheels(root, "torch-cpu", "3.11", [])
    assert not list((root / ".cache").rglob("wheels.stamp"))


def test_places_become_options_and_a_missing_folder_is_refused(tmp_path):
    assert index_options(("https://i.example",), (str(tmp_path),)) == [
        *("--extra-index-url", "https://i.example"),
        *("--find-links", str(tmp_path)),
    ]
    with pytest.raises(LabError, match="no such folder"):
        index_options((), (str(tmp_path / "none"),))
