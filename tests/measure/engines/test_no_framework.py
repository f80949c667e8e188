"""Copies need no framework: verify without training does not import torch, in any of its processes."""

import os
import subprocess
import sys


def test_verify_without_training_does_not_import_torch(tmp_path):
    """A package of that name writes down who imports it; to look for it is not to import it."""
    marker = tmp_path / "imported"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(f"import sys\nopen({str(marker)!r}, 'a').write(' '.join(sys.argv))\n")
    own = {**os.environ, "PYTHONPATH": str(tmp_path), "GPUCHECK_SIMULATOR": ""}
    words = [sys.executable, "-m", "gpucheck", "verify", "--simulate", "p100-pcie-x2", "--skip", "training"]
    done = subprocess.run(
        [*words, "--format", "json"], env=own, capture_output=True, text=True, timeout=280, check=False
    )

    assert '"p2p-bandwidth"' in done.stdout, done.stderr
    assert not marker.exists(), marker.read_text()
    subprocess.run([sys.executable, "-c", "import torch"], env=own, check=True)
    assert marker.exists()
