"""Other runtimes give an image the GPUs of a simulated machine: GPUCHECK_RUNTIMES="podman apptainer".

Podman through CDI, with a specification of ours: needs root. Apptainer with --nv: from Debian's archive, in a container
and there without root. The commands are those of the page.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.lab.images import debian_archive, read_sources
from tests.images.containers import ASKED, ROOT, Image, carry

pytestmark = pytest.mark.images

RUNTIMES = tuple(os.environ.get("GPUCHECK_RUNTIMES", "").split())
SECONDS = 1200
PROFILE = "a100-sxm-x4"
SIMULATOR = "/run/gpucheck-simulator"
# A driver's directory that the image sets, as GKE mounts it.
DRIVER = "/usr/local/nvidia/lib64"
NVML = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion())"
# bookworm's C library is too old for it; the archive's newest suite brings its own.
TOOLS = """FROM {base}
RUN echo 'deb {archive} sid main' >/etc/apt/sources.list.d/sid.list && \\
    apt-get -qq -o Acquire::Check-Valid-Until=false update && \\
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends apptainer && useradd -m someone
"""


def shell(words, status=0, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, **options)
    assert done.returncode == status, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module", params=ASKED[:1])
def image(request):
    return Image(request.param)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine") / "m"
    simulator.make(simulator.load(PROFILE), folder, (), ())
    return folder


class Podman:
    """An engine with a specification of its own: the shape of `nvidia-ctk cdi generate`, devices that are /dev/null."""

    SPEC = Path("/var/run/cdi/gpucheck-test.json")
    KIND = "gpucheck.test/gpu"

    def __init__(self, image, machine, _folder):
        self.tag = f"localhost/{image.tag}"
        carry("docker", "podman", image.tag)
        mounts = {str(machine): SIMULATOR, str(machine / "lib"): DRIVER}
        spec = {
            "cdiVersion": "0.5.0",
            "kind": self.KIND,
            "devices": [{"name": "all", "containerEdits": {"deviceNodes": [self.node("/dev/nvidia0")]}}],
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void"],
                "deviceNodes": [self.node("/dev/nvidiactl")],
                "mounts": [
                    {"hostPath": host, "containerPath": inside, "options": ["ro", "nosuid", "nodev", "bind"]}
                    for host, inside in mounts.items()
                ],
            },
        }
        self.SPEC.parent.mkdir(exist_ok=True)
        self.SPEC.write_text(json.dumps(spec))

    @staticmethod
    def node(path):
        return {"path": path, "hostPath": "/dev/null"}

    def run(self, *command, status=0):
        line = re.search(r"`(podman run --rm --device .*) IMAGE`", (ROOT / "docs/images.md").read_text())[1]
        words = line.replace("nvidia.com/gpu", self.KIND).split()
        # runc, because crun needs control groups v2; limits that a host which may not raise them has too.
        words[1:2] = [
            "--runtime",
            "runc",
            "run",
            "--network",
            "none",
            "--ulimit",
            "nofile=1024",
            "--ulimit",
            "nproc=1024",
        ]
        return shell([*words, self.tag, *command], status)

    def end(self):
        self.SPEC.unlink()
        shell(["podman", "rmi", "--force", self.tag])


class Apptainer:
    """The user's own command in a container that allows user namespaces and has the machine's driver libraries."""

    TAG = "localhost/gpucheck-apptainer:test"
    OPEN = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")

    def __init__(self, image, machine, folder):
        self.machine, self.folder = machine, folder
        folder.chmod(0o777)
        base = image.client.images.list(name="gpucheck-lab/base")[0].tags[0]
        text = TOOLS.format(base=base, archive=debian_archive(read_sources()).uri)
        shell(
            ["docker", "build", "--quiet", "--tag", self.TAG, "-"],
            input=text,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
        )
        shell(["docker", "save", "--output", folder / "image.tar", image.tag])
        (folder / "image.tar").chmod(0o644)
        self.shell("APPTAINER_TMPDIR=/work apptainer build --sandbox torch.sif docker-archive:image.tar")
        (folder / "image.tar").unlink()

    def shell(self, script, status=0):
        as_user = ["setpriv", "--reuid=someone", "--regid=someone", "--init-groups", "env", "HOME=/home/someone"]
        words = ["docker", "run", "--rm", "--network", "none", "--shm-size", "1g", "--workdir", "/work"]
        words += [word for option in self.OPEN for word in ("--security-opt", option)]
        words += ["--device", "/dev/null:/dev/nvidiactl", "--volume", f"{self.folder}:/work"]
        words += ["--volume", f"{self.machine}:{SIMULATOR}:ro"]
        for path in (self.machine / "lib").glob("*.so.*.*"):
            words += ["--volume", f"{path}:/usr/lib/x86_64-linux-gnu/{path.name}:ro"]
        script = f"ldconfig && exec {' '.join(as_user)} sh -c '{script}'"
        return shell([*words, self.TAG, "sh", "-c", script], status)

    def run(self, *command, status=0):
        page = (ROOT / "docs/images.md").read_text()
        line = re.search(r"apptainer exec --nv .* torch\.sif", page)[0].replace("--nv", f"--nv --bind {SIMULATOR}", 1)
        words = " ".join(f'"{word}"' for word in command)
        return self.shell(f"{line} {words}", status)

    def end(self):
        self.shell("rm -rf /work/torch.sif")
        shell(["docker", "rmi", "--force", self.TAG])


KINDS = {"podman": Podman, "apptainer": Apptainer}


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request, image, machine, tmp_path_factory):
    found = KINDS[request.param](image, machine, tmp_path_factory.mktemp(request.param))
    yield found
    found.end()


def test_programs_see_the_gpus_and_the_loader_finds_the_driver(runtime):
    report = json.loads(runtime.run("python", "-m", "gpucheck.images.selfreport", "--quick"))

    assert (report["device"], report["driver"], report["shadowing"]) == ("open", "loaded", {})
    version = simulator.load(PROFILE).driver.version
    assert any(folder in report["driver_files"][0] for folder in (DRIVER, "/.singularity.d/libs"))
    if (
        runtime.__class__ is Podman
    ):  # Apptainer gives the library another name, without a version, which a real one keeps
        assert runtime.run("python", "-c", NVML).split() == ["4", version]


def test_the_self_test_takes_the_variable_of_cdi_for_what_it_is(runtime, image):
    """A CUDA variant passes; a CPU variant warns of GPUs that it cannot use."""
    output = runtime.run("gpucheck", "image", status=0 if image.variant.spec.gpus else 1)

    assert "SIMULATED" in output
    assert "4 x " in output if image.variant.spec.gpus else "4 GPUs, and a CPU build" in output
    assert "NVIDIA_VISIBLE_DEVICES" not in output


def test_the_environment_is_the_images_own_and_read_only(runtime):
    script = "command -v python; command -v gpucheck; touch /opt/venv/x 2>/dev/null || echo refused"
    output = runtime.run("sh", "-c", script)

    assert output.split() == ["/opt/venv/bin/python", "/opt/venv/bin/gpucheck", "refused"]
