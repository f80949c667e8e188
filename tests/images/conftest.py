"""A checkout that holds the images' files and nothing else."""

from pathlib import Path

import pytest

from gpucheck.images import build as building

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout's images and nothing else; pip and the Debian archive are only asked in words."""
    for folder in ("images", "constraints.txt"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.setattr(building, "registry_answers", lambda: False)
    monkeypatch.setattr(building, "ensure_base", lambda _client: "gpucheck-lab/base:0")
    monkeypatch.setattr(building, "security_line", lambda: "deb http://a.example/debian-security s main")
    monkeypatch.setattr(building, "private_certificates", lambda: b"PEM")
    monkeypatch.setattr(building, "ensure_wheels", lambda *_: tmp_path)

    def own_wheel(_root, folder):
        wheel = folder / "gpucheck_cluster-0.1.0-py3-none-any.whl"
        if not wheel.exists():
            wheel.write_bytes(b"wheel")
        return wheel

    monkeypatch.setattr(building, "own_wheel", own_wheel)
    return tmp_path
