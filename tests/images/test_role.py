"""The command that the role gpucheck writes where the site wants gpucheck from its image, run by the real engine."""

import json
import shlex
import socket
import subprocess

import pytest
from jinja2 import Environment, StrictUndefined

from tests.images.containers import ASKED, Image
from tests.playbooks.modules import ROLES

pytestmark = pytest.mark.images


@pytest.fixture(params=ASKED)
def command(request, tmp_path):
    template = (ROLES / "gpucheck/templates/gpucheck.j2").read_text(encoding="utf-8")
    shell = Environment(undefined=StrictUndefined)  # noqa: S701 - no HTML
    shell.filters["quote"] = shlex.quote
    text = shell.from_string(template).render(
        gpucheck_engine="docker", gpucheck_image_pulled=Image(request.param).tag, gpucheck_image_options=[]
    )
    made = tmp_path / "gpucheck"
    made.write_text(text.replace("--volume /var/lib/gpucheck:", f"--volume {tmp_path}:"), encoding="utf-8")
    made.chmod(0o755)
    return made


def test_a_report_of_this_host_is_written_from_the_container(command, tmp_path):
    words = ["verify", "--simulate", "p100-pcie-x2", "--level", "quick", "--format", "json"]
    done = subprocess.run(
        [command, *words, "-o", "/var/lib/gpucheck/report.json"], capture_output=True, text=True, check=False
    )

    report = json.loads((tmp_path / "report.json").read_bytes())
    # TensorFlow's CPU image warns that TensorFlow is without its CUDA packages.
    assert done.returncode == {"pass": 0, "warn": 1}[report["verdict"]], done.stderr
    assert report["host"] == socket.gethostname()
    assert report["simulated"] is True


def test_the_exit_status_is_gpuchecks_own(command):
    done = subprocess.run([command, "verify", "--levle", "quick"], capture_output=True, text=True, check=False)

    assert (done.returncode, "did you mean" in done.stderr.lower()) == (64, True)
