"""Wheels are built and downloaded when something changed, and only then."""

from pathlib import Path

import pytest

from gpucheck.lab import wheelhouse
from gpucheck.lab.system import LabError
from gpucheck.lab.wheelhouse import dependencies, ensure_wheelhouse, own_wheel

TORCH_WHEEL = f"torch-{wheelhouse.TORCH}+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


class Pip:
    """Pip's place: writes the files that pip would, and remembers its command lines."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.cpu_build = True
        self.version = "0.1.0"

    def __call__(self, command, **_options):
        words = [str(word) for word in command]
        self.calls.append(words)
        if "wheel" in words:
            folder = Path(words[words.index("--wheel-dir") + 1])
            folder.mkdir(exist_ok=True)
            (folder / f"gpucheck_cluster-{self.version}-py3-none-any.whl").write_bytes(b"wheel %d" % len(self.calls))
            return ""
        if words[-1].endswith("+cpu") and not self.cpu_build:
            raise LabError("no such version")
        folder = Path(words[words.index("--dest") + 1])
        (folder / (TORCH_WHEEL if self.cpu_build else TORCH_WHEEL.replace("+cpu", ""))).write_bytes(b"torch")
        (folder / f"numpy-{len(self.calls)}-py3-none-any.whl").write_bytes(b"numpy")
        return ""


@pytest.fixture
def pip(monkeypatch):
    fake = Pip()
    monkeypatch.setattr(wheelhouse, "run", fake)
    return fake


@pytest.fixture
def root(tmp_path):
    (tmp_path / "gpucheck").mkdir()
    (tmp_path / "gpucheck/__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return tmp_path


def test_nothing_is_done_twice(root, pip):
    ensure_wheelhouse(root, ("3.11",))
    calls = len(pip.calls)

    made = ensure_wheelhouse(root, ("3.11",))

    assert len(pip.calls) == calls
    assert made.torch_version == f"{wheelhouse.TORCH}+cpu"


def test_changed_sources_make_a_new_wheel_and_no_new_download(root, pip):
    made = ensure_wheelhouse(root, ("3.11",))
    calls = len(pip.calls)

    (root / "gpucheck/run.py").write_text("x = 1\n")
    pip.version = "0.2.0"
    ensure_wheelhouse(root, ("3.11",))

    assert ["wheel" in words for words in pip.calls[calls:]] == [True]
    assert [path.name for path in made.folder.glob("gpucheck*.whl")] == ["gpucheck_cluster-0.2.0-py3-none-any.whl"]


def test_a_changed_constraint_downloads_again_and_drops_what_is_no_longer_needed(root, pip):
    made = ensure_wheelhouse(root, ("3.11",))
    old = {path.name for path in made.folder.glob("numpy-*.whl")}

    (root / "constraints.txt").write_text("numpy==2\n")
    ensure_wheelhouse(root, ("3.11",))

    assert old
    assert not old & {path.name for path in made.folder.glob("*.whl")}
    assert str(root / "constraints.txt") in pip.calls[-1]


def test_without_a_cpu_build_the_full_one_is_taken_and_said(root, pip, capsys):
    pip.cpu_build = False

    made = ensure_wheelhouse(root, ("3.11",))

    assert made.torch_version == wheelhouse.TORCH
    assert "taking the full one, about 3 GB" in capsys.readouterr().err


def test_an_interrupted_download_is_done_again(root, pip, monkeypatch):
    folder = root / "wheels"
    folder.mkdir()
    wheel = own_wheel(root, folder)
    monkeypatch.setattr(wheelhouse, "run", lambda *_a, **_o: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        dependencies(root, folder, wheel, "3.11")

    monkeypatch.setattr(wheelhouse, "run", pip)
    dependencies(root, folder, wheel, "3.11")

    assert (folder / TORCH_WHEEL).exists()
    assert not list(folder.glob(".download-*"))
