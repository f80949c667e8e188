"""The mirror container: builds and signs the stub packages, and serves them and the wheelhouse."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.lab import catalogue
from gpucheck.lab.containers import checked_output, create, lab_containers, put, start, wait_for
from gpucheck.lab.model import LABEL_STAMP, Lab, fingerprint
from gpucheck.lab.system import say
from gpucheck.simulator.cuda.library import SOURCES as CUDA_SOURCES
from gpucheck.simulator.nvml.exports import exports, unsimulated_rows, version_script
from gpucheck.simulator.nvml.library import SOURCES

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

STAMP = "/srv/www/stamp"


def library_files() -> dict[str, bytes | Path]:
    """The C sources of the simulated NVML and CUDA driver libraries, and what each driver branch exports of NVML."""
    files: dict[str, bytes | Path] = {"nvml": SOURCES, "cuda": CUDA_SOURCES}
    for branch in sorted({package.version.split(".")[0] for package in catalogue.packages() if package.nvml}):
        chosen = exports(branch)
        files[f"exports/{branch}/unsimulated.inc"] = unsimulated_rows(chosen).encode()
        files[f"exports/{branch}/exports.map"] = version_script(chosen).encode()
    return files


def ensure_mirror(client: "DockerClient", lab: Lab, image: str, wheels: Path) -> str:
    """Start the mirror with the content of the catalogue. Returns the fingerprint of its signing key.

    The key is made in the container when it first runs and never leaves it.
    """
    name = lab.container("mirror")
    stamp = fingerprint([image, str(lab.mirror_ip), str(wheels)])
    container = lab_containers(client, lab.name).get(name)
    if container is not None and container.labels.get(LABEL_STAMP) != stamp:
        say("the mirror's image has changed: creating it again")
        container.remove(force=True)
        container = None
    if container is None:
        container = create(
            client,
            lab,
            name,
            hostname="mirror",
            image=image,
            ip=lab.mirror_ip,
            labels={LABEL_STAMP: stamp},
            restart_policy={"Name": "unless-stopped"},
            init=True,
            volumes={str(wheels): {"bind": "/srv/www/wheels", "mode": "ro"}},
        )
    if container.status != "running":
        start(container)
    wait_for(container, "true", what="starting the mirror")
    fill(container, lab.root)
    return checked_output(container, "cat", "/srv/keys/good/fingerprint", what="reading the mirror's key").strip()


def fill(container: "Container", root: Path) -> None:
    """Build the repositories unless the container holds exactly these already."""
    images = root / "images/lab"
    content = catalogue.to_json()
    stamp = fingerprint([content, *library_files().values(), images / "payload", images / "mirror"])
    if (
        checked_output(
            container, "sh", "-c", f"cat {STAMP} 2>/dev/null || echo none", what="reading the mirror's state"
        ).strip()
        == stamp
    ):
        return
    say(f"building and signing {len(catalogue.packages())} stub packages")
    put(
        container,
        "/srv/build",
        {
            "catalogue.json": content,
            **library_files(),
            "payload": images / "payload",
            **{program.name: program for program in sorted((images / "mirror").glob("*.py"))},
        },
    )
    checked_output(container, "python3", "/srv/build/build_repos.py", what="building the stub packages")
    put(container, "/srv/www", {"stamp": stamp.encode()})
