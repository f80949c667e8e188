"""Locks: a hash for every line, and wheels for every promised platform."""

import re

import pytest

from gpucheck.images import build, versions
from gpucheck.images.build import BuildOptions, ImagePlan, assemble
from gpucheck.images.versions import lock_path, require_platform
from gpucheck.lab.system import LabError
from release import image_versions
from release.image_versions import check_lock
from tests.images.test_versions import NAMES, ROOT, VERSIONS


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "images/locks").iterdir())])
def test_every_line_of_every_lock_has_a_hash(name):
    """One without is a wheel that any index in reach may replace."""
    blocks = re.split(r"\n(?=\S)", lock_path(ROOT, name).read_text())
    assert [block for block in blocks if "==" in block and "--hash=sha256:" not in block] == []


def test_making_locks_goes_on_where_one_index_is_out_of_reach(monkeypatch, tmp_path, capsys):
    """What is made is checked for each platform, and only others' indexes mix."""
    asked, checked = {}, []

    def compile_lock(wanted, limits, root, target, options, *, project=True):
        asked[target.stem] = options
        if target.stem == "torch-cu126":
            raise LabError("locking torch-cu126 failed\ndo: name the index")

    (tmp_path / "constraints.txt").write_text("")
    monkeypatch.setattr(image_versions, "compile_lock", compile_lock)
    monkeypatch.setattr(image_versions, "check_lock", lambda name, *_: checked.append(name))
    image_versions.make_locks(VERSIONS, tmp_path, ["--find-links", "/wheels"])

    assert set(asked) == {"tools", *NAMES}
    assert [name for name, options in asked.items() if "unsafe-best-match" in options] == ["torch-cpu"]
    assert checked == [name for name in NAMES if name != "torch-cu126"]
    assert "the lock of torch-cu126 is not complete\n  locking torch-cu126 failed" in capsys.readouterr().err


def test_a_lock_is_resolved_for_each_platform_of_its_row_without_a_download(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(image_versions, "run", lambda words, **_: asked.append(words))
    row = VERSIONS.variants["torch-cu132"]

    check_lock("torch-cu132", row, tmp_path / "l.txt", VERSIONS.base, ["--find-links", "/w"])

    platforms = [words[words.index("--python-platform") + 1] for words in asked]
    assert platforms == ["x86_64-manylinux_2_39", "aarch64-manylinux_2_39"]
    assert all("--dry-run" in words and "--require-hashes" in words and "/w" in words for words in asked)


@pytest.mark.parametrize(
    ("name", "where"),
    [("torch-cu126", "2.7.1-cu126 are on PyPI,"), ("torch-cpu", "2.13.0-cpu are in the sub-index cpu of")],
)
def test_a_variant_without_a_lock_names_where_its_wheels_are(name, where, tmp_path):
    with pytest.raises(
        LabError, match=rf"(?s){name} has no lock.*{where}.*release.image_versions --update --index URL"
    ):
        assemble(ImagePlan(tmp_path, VERSIONS.variant(name), name, VERSIONS.base, "b"))


class Engine:
    """A Docker engine of one architecture."""

    def __init__(self, arch):
        self.arch = arch

    def version(self):
        return {"ApiVersion": "1.41", **({"Arch": self.arch} if self.arch else {})}


@pytest.fixture
def machine(monkeypatch):
    return lambda name: monkeypatch.setattr(versions.platform, "machine", lambda: name)


@pytest.mark.parametrize(
    ("host", "engine", "name", "words"),
    [
        ("aarch64", "arm64", "torch-cu126", "torch-cu126 cannot be built for linux/arm64: (?s:.*)build it on amd64"),
        # A remote engine: pip of this machine would download wheels that do not run there.
        ("x86_64", "arm64", "torch-cu132", "(?s)is linux/arm64 and this host linux/amd64.*image context torch-cu132"),
        ("ppc64le", "ppc64le", "torch-cu132", "torch-cu132 cannot be built for linux/ppc64le"),
    ],
)
def test_what_cannot_be_built_there_is_refused(machine, host, engine, name, words):
    machine(host)

    with pytest.raises(LabError, match=words):
        require_platform(Engine(engine), VERSIONS, name)


def test_an_engine_that_states_no_architecture_is_this_machines(machine):
    machine("aarch64")

    require_platform(Engine(None), VERSIONS, "torch-cu132")
    with pytest.raises(LabError, match="linux/arm64"):
        require_platform(Engine(None), VERSIONS, "torch-cu126")


def test_a_build_asks_before_anything_else(machine, monkeypatch):
    machine("aarch64")
    monkeypatch.setattr(build, "plan_of", lambda *_: pytest.fail("the build went on"))

    with pytest.raises(LabError, match="torch-cu126 cannot be built for linux/arm64"):
        build.build(Engine("arm64"), ROOT, "torch-cu126", BuildOptions())
