"""A checkout with a policy that a test can change, and the command on an engine of its own."""

from types import SimpleNamespace

import pytest

from gpucheck.cli import main
from gpucheck.images.scan import FILE
from gpucheck.lab import engine, model
from tests.images.scan.policies import ROOT


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with a policy that a test can change."""
    images = tmp_path / "images"
    images.mkdir()
    (images / "versions.yml").symlink_to(ROOT / "images/versions.yml")
    (images / "scan.yml").symlink_to(ROOT / FILE)
    monkeypatch.setattr(model, "checkout", lambda: tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def images(checkout, monkeypatch, capsys):
    """Run the command on an engine with one built image, an older one of it and one derived from it."""

    def built(tag, created):
        return SimpleNamespace(tags=[tag], attrs={"Created": created})

    def run(*words, updates=b"", tags=("gpucheck/torch:2-cpu-py312",)):
        found = [
            built("someones/own:1", "2026-11-24"),
            *(built(tag, f"2026-11-{20 - n}") for n, tag in enumerate(tags)),
        ]
        client = SimpleNamespace(
            images=SimpleNamespace(list=lambda filters: found if filters["label"].endswith("=torch-cpu") else []),
            containers=SimpleNamespace(run=lambda *_words, **_options: answer(updates)),
        )
        monkeypatch.setattr(engine, "engine", lambda: client)
        with pytest.raises(SystemExit) as stop:
            main(["image", "scan", *words])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    def answer(updates):
        if isinstance(updates, Exception):
            raise updates
        return updates

    return run
