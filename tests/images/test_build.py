"""Building: which base, what reaches the build, when nothing is done, and what is said when it cannot be."""

import io
import json
import subprocess
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
from msgspec.structs import replace

from gpucheck.images import build as building
from gpucheck.images.build import SBOM, BuildOptions, assemble, build, commit, ensure_wheels, plan_of
from gpucheck.lab.system import LabError
from tests.images.test_versions import VERSIONS
from tests.lab.fake_docker import FakeNetwork


class Engine:
    """A Docker engine of values: what it builds it remembers, and what it is asked is written down."""

    def __init__(self, size=10**9):
        self.made = {}
        self.calls = []
        self.pulled = None
        self.size = size
        self.networks = SimpleNamespace(get=lambda _name: FakeNetwork("bridge", "127.0.0.0/8", gateway="127.0.0.1"))
        self.removed = []
        self.images = SimpleNamespace(
            build=self.build, get=self.get, prune=self.prune, pull=self.pull, remove=self.removed.append
        )
        self.containers = SimpleNamespace(create=self.create)

    def version(self):
        return {}

    def build(self, **options):
        self.calls.append(options)
        old = self.made.pop(options["tag"], None)
        made = SimpleNamespace(
            id=f"sha256:{len(self.calls)}",
            labels=options["labels"],
            tags=[options["tag"]],
            # What Docker 29 calls the size: compressed bytes beside the unpacked ones.
            attrs={"Size": self.size + 10**9},
            history=lambda: [{"Size": 1000}, {"Size": self.size - 1000}],
        )
        if old:
            old.tags = []
            self.made[old.id] = old
        self.made[options["tag"]] = self.made[made.id] = made

    def get(self, tag):
        if tag not in self.made:
            raise docker.errors.ImageNotFound(tag)
        return self.made[tag]

    def prune(self, filters):
        assert filters == {"dangling": True, "label": "gpucheck.images=build"}

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


def test_a_build_makes_both_stages_labels_the_image_and_keeps_the_sbom(checkout):
    engine = fake_engine()

    made = build(engine, checkout, "torch-cpu", BuildOptions())

    # Of the unpacked layers: Docker 29 adds the compressed bytes to an image's Size.
    assert made.size_bytes == 10**9
    assert [call["target"] for call in engine.calls] == ["build", "runtime"]
    assert made.tag == "gpucheck/torch:2.13.0-cpu-py311-debian12"
    assert engine.calls[1]["labels"]["gpucheck.images"] == "torch-cpu"
    assert made.sbom.read_bytes() == b"{}"


def test_nothing_changed_is_nothing_built(checkout):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", BuildOptions())

    again = build(engine, checkout, "torch-cpu", BuildOptions())

    assert again.built is False
    assert len(engine.calls) == 2
    again.sbom.unlink()
    assert build(engine, checkout, "torch-cpu", BuildOptions()).built is True


def test_a_replaced_image_goes_and_images_that_people_derived_stay(checkout):
    """Derived images inherit the label, so that pruning by it took them too."""
    engine = fake_engine()
    made = build(engine, checkout, "torch-cpu", BuildOptions())
    old = engine.made[made.tag].id
    (checkout / ".cache/images/gpucheck_cluster-0.1.0-py3-none-any.whl").write_bytes(b"changed")

    build(engine, checkout, "torch-cpu", BuildOptions())

    assert engine.removed == [old]


def test_the_build_is_told_where_things_are_and_the_ca_does_not_stay(checkout):
    engine = fake_engine()

    build(engine, checkout, "torch-cpu", BuildOptions())

    arguments = engine.calls[0]["buildargs"]
    assert arguments["BASE"] == "gpucheck-lab/base:0"
    assert arguments["WHEELS_URL"].endswith("/wheels/")
    assert "PIP_INDEX_URL" not in arguments
    assert not list((checkout / "build").rglob("ca.pem"))
    assert all(
        b"PEM" not in path.read_bytes() for path in (checkout / "build/images/torch-cpu").rglob("*") if path.is_file()
    )


def test_a_size_over_budget_fails_with_the_command_that_lists_its_folders(checkout):
    with pytest.raises(LabError, match=r"(?s)has 9000 MB; its budget .* is 1500 MB.*docker run .* du "):
        build(fake_engine(size=9 * 10**9), checkout, "torch-cpu", BuildOptions())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (docker.errors.BuildError("exit 1", iter([{"stream": "pip: No space left on device\n"}])), "the disk is full"),
        (
            docker.errors.BuildError("exit 1", iter([{"stream": "E: Unable to locate package tini\n"}])),
            "package archive",
        ),
        (docker.errors.APIError("no such image"), "rejected the request"),
    ],
)
def test_a_failed_build_is_told_with_its_last_words(checkout, error, words):
    engine = fake_engine()

    def fails(**_options):
        raise error

    engine.images.build = fails

    with pytest.raises(LabError, match=words):
        build(engine, checkout, "torch-cpu", BuildOptions())


def test_a_registry_that_answers_gives_the_pinned_base(checkout, monkeypatch):
    monkeypatch.setattr(building, "registry_answers", lambda: True)
    engine = fake_engine()
    mirror = replace(VERSIONS, base=replace(VERSIONS.base, image="r.example:5000/os/ubuntu:24.04@sha256:1"))

    plan = plan_of(engine, checkout, VERSIONS, "torch-cpu", None)

    assert engine.pulled == f"ubuntu@{VERSIONS.base.digest}"
    assert (plan.stand_in, plan.base_image) == (False, VERSIONS.base.image)
    plan_of(engine, checkout, mirror, "torch-cpu", None)
    assert engine.pulled == "r.example:5000/os/ubuntu@sha256:1"


def test_a_digest_that_the_registry_lost_is_said(checkout, monkeypatch):
    monkeypatch.setattr(building, "registry_answers", lambda: True)

    with pytest.raises(LabError, match="not in its registry"):
        plan_of(fake_engine(size=docker.errors.NotFound("manifest unknown")), checkout, VERSIONS, "torch-cpu", None)


def test_a_given_base_is_taken_as_it_is(checkout):
    plan = plan_of(fake_engine(), checkout, VERSIONS, "torch-cu132", "mirror.example/ubuntu:24.04")

    # NCCL's network libraries, and C++ for the CPU part of what torch.compile makes.
    assert plan.arguments() == {
        "BASE": "mirror.example/ubuntu:24.04",
        "PACKAGES": "libibverbs1 ibverbs-providers librdmacm1 gcc libc6-dev libpython3-dev g++",
        "GPUS": "all",
        "FRAMEWORK_VERSION": "2.15.0",
    }
    # It is not the image that the versions file describes, and is not published as that.
    assert plan.tag == "gpucheck/torch:2.15.0-cu132-py312-custom"


def test_a_mirrors_copy_of_the_pinned_base_is_the_pinned_base(checkout):
    plan = plan_of(fake_engine(), checkout, VERSIONS, "torch-cpu", f"mirror.example/ubuntu@{VERSIONS.base.digest}")

    assert plan.tag == "gpucheck/torch:2.13.0-cpu-py312"
    assert plan.base.digest == VERSIONS.base.digest


def test_a_cpu_variant_asks_for_no_gpu_and_a_stand_in_for_security_updates(checkout):
    """With the nvidia runtime as default, "all" took every GPU of the host."""
    arguments = plan_of(fake_engine(), checkout, VERSIONS, "tensorflow-cpu", None).arguments()

    assert arguments == {
        "BASE": "gpucheck-lab/base:0",
        "GPUS": "void",
        "SECURITY": "deb http://a.example/debian-security s main",
    }


def test_the_context_is_whole_and_its_promise_is_the_row(checkout):
    plan = plan_of(fake_engine(), checkout, VERSIONS, "torch-cu132", None)
    folder = assemble(plan)

    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "Dockerfile",
        "requirements.txt",
        "tools.txt",
        "image.json",
        "gpucheck_cluster-0.1.0-py3-none-any.whl",
        "build/with-ca",
        "build/apt-install",
        "build/system-layer",
        "build/compile-python",
        "build/python-environment",
        "build/gpucheck-layer",
    }
    said = json.loads((folder / "image.json").read_text())
    assert (said["cuda"], said["python"], said["stand_in_base"]) == ("13.2", "3.11", True)


@pytest.fixture
def pip(monkeypatch):
    calls = []
    monkeypatch.setattr(building, "run", lambda words, **_: calls.append([str(word) for word in words]))
    return calls


def test_wheels_are_downloaded_once_for_a_lock(checkout, pip):
    first = ensure_wheels(checkout, "torch-cpu", "3.11", ["--extra-index-url", "https://i.example"])
    again = ensure_wheels(checkout, "torch-cpu", "3.11", [])

    assert first == again
    assert len(pip) == 2
    assert "https://i.example" in pip[0]
    ensure_wheels(checkout, "torch-cpu", "3.12", [])
    assert len(pip) == 4


def test_an_origin_with_a_login_or_a_path_is_not_published(tmp_path, monkeypatch):
    answers = {"log": "abc", "config": "https://me:secret@host/r", "status": " M file"}
    monkeypatch.setattr(subprocess, "run", lambda words, **_: SimpleNamespace(returncode=0, stdout=answers[words[3]]))

    assert commit(tmp_path) == {"revision": "abc-dirty"}


def test_created_is_the_time_of_the_build_and_given_where_bytes_must_repeat(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert abs(building.build_time().timestamp() - time.time()) < 5
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert building.build_time().isoformat() == "1970-01-01T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(LabError, match="SOURCE_DATE_EPOCH='today' is not a number of seconds"):
        building.build_time()


def test_a_fresh_build_installs_updates_and_later_ones_keep_them(checkout, monkeypatch):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", BuildOptions())
    assert "UPDATES" not in engine.calls[-1]["buildargs"]

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764460800")
    assert build(engine, checkout, "torch-cpu", BuildOptions(fresh=True)).built
    fresh = engine.calls[-1]
    assert fresh["buildargs"]["UPDATES"] == fresh["labels"]["gpucheck.images.updates"] == "20251130000000"

    # Another gpucheck, without --fresh: not the older packages that the builder's cache holds for no state at all.
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    (checkout / ".cache/images/gpucheck_cluster-0.1.0-py3-none-any.whl").write_bytes(b"changed")
    build(engine, checkout, "torch-cpu", BuildOptions())
    assert engine.calls[-1]["buildargs"]["UPDATES"] == "20251130000000"
