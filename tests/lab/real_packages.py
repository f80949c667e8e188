"""A lab host for real packages: Debian 12 as it is, installing from Debian's archive. Only its hardware is SIMULATED.

It has no stub package and no stub kernel program: apt, DKMS, the compiler, modinfo, modprobe and NVML are the
real ones. The kernel that it reports is the newest of the archive, so that headers belong to it; what really runs is
the engine's kernel, which loads no module of that one.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucheck.lab import containers, images
from gpucheck.lab import inventory as files
from gpucheck.lab.hosts import host_options, machine_archive
from gpucheck.lab.lifecycle import login_key, one_at_a_time, write_down
from gpucheck.lab.model import LABEL_STAMP, HostSpec, Lab, make_lab
from gpucheck.lab.system import LabError, engine, failed, say
from gpucheck.lab.wheelhouse import ensure_wheelhouse

if TYPE_CHECKING:
    from docker import DockerClient

# Pascal needs the proprietary modules, which are those that the archive has.
HOST = HostSpec("lab-debian", "debian-host", "p100-pcie-x2", "", "gpu_debian", 13)
PYTHON = "3.11"
STAND_INS = ("the release of the kernel that runs; the engine's kernel loads none of its modules",)
WHEELS = "/srv/wheels"
HEADERS = "linux-headers-amd64"
RELEASE = re.compile(r"Depends: linux-headers-(\S+)")
ANSWER_SECONDS = 300
# torch is left out: its wheels bring a CUDA of their own, and nothing of it is tried without a GPU.
STACK_SPEC = {"source": "debian", "torch": "none", "tensorflow": "none"}


def up(lab: Lab) -> Path:
    """Bring the host up, or find that it is; returns the inventory's path. Raises LabError."""
    with one_at_a_time(lab.root):
        client = engine()
        containers.check_network(client, lab)
        wheels = ensure_wheelhouse(lab.root, (PYTHON,)).folder
        with containers.engine_errors("building the image of the Debian host"):
            image = ensure_image(client, lab.root)
        containers.ensure_network(client, lab)
        key = ensure_host(client, lab, image, wheels, login_key(lab.directory))
        return write_down(lab, inventory(lab), STACK_SPEC, {str(lab.ip(HOST)): key})


def inventory(lab: Lab) -> dict[str, Any]:
    """As of the other lab, with this host in place of the others; wheels lie on it, there is no mirror."""
    found = files.inventory(lab, "posing")["gpu"]
    del found["vars"]["preflight_minimum_free_gib"]  # real packages need what the role demands
    found["vars"]["gpucheck_pip_args"] = ["--no-index", "--find-links", WHEELS]
    row = {"ansible_host": str(lab.ip(HOST)), "gpucheck_python": "python3"}
    found["children"] = {HOST.group: {"hosts": {HOST.name: row}}}
    return {"gpu": found}


def ensure_image(client: "DockerClient", root: Path) -> str:
    context = root / "images/lab"
    base = images.ensure_base(client)
    recipe = images.Recipe(HOST.image, "Dockerfile.debian-host", None, base)
    tag = recipe.tag(context)
    if not client.images.list(name=tag):
        say("building the image of the Debian host")
        with images.certificates(
            client, images.private_certificates() if archive_source().uri.startswith("https:") else b""
        ) as url:
            images.build_all(client, context, [recipe], url)
    return tag


def archive_source() -> images.AptSource:
    """Where this machine gets Debian from. Raises LabError where its apt names no archive."""
    found = images.debian_archive(images.read_sources())
    if found is None:
        raise LabError(
            "this machine's apt names no archive of Debian, and real packages come from there\n"
            "do: name one in GPUCHECK_LAB_ARCHIVE, the address before dists/"
        )
    return found


def sources() -> bytes:
    """The host's apt sources, in the form in which Debian 12 installs them: main alone, updates, security updates."""
    security = images.security_archive(images.read_sources())
    rows = ((archive_source().uri, f"{images.SUITE} {images.SUITE}-updates"), security)
    stanza = "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n"
    return "\n".join(stanza.format(uri, suites, images.DEFAULT_KEYRING) for uri, suites in rows).encode()


def ensure_host(client: "DockerClient", lab: Lab, image: str, wheels: Path, public_key: str) -> str:
    """The host, running, with its login and its sources. Returns its host key."""
    container = containers.kept(containers.lab_containers(client, lab.name).get(lab.container(HOST.name)), image)
    if container is None:
        machine = machine_archive(replace(HOST, kernel=newest_kernel(client, lab, image)), STAND_INS)
        volumes = {str(wheels): {"bind": WHEELS, "mode": "ro"}}
        options = host_options(client, volumes)
        container = containers.create(client, lab, HOST, image=image, labels={LABEL_STAMP: image}, **options)
        containers.put_archive(container, "/", machine)
        containers.put(container, "/etc/apt/sources.list.d", {"debian.sources": sources()})
    containers.start(container)
    containers.put(container, "/home/ops/.ssh", {"authorized_keys": public_key.encode()})
    containers.wait_for(container, "systemctl", "is-active", "multi-user.target", what=f"booting {HOST.name}")
    return containers.host_key(container)


def newest_kernel(client: "DockerClient", lab: Lab, image: str) -> str:
    """The kernel release that the archive has headers for today, ``6.1.0-56-amd64``. Asked in a container."""
    host = replace(HOST, name="ask", offset=HOST.offset + 1)
    for old in (c for n, c in containers.lab_containers(client, lab.name).items() if n == lab.container(host.name)):
        old.remove(force=True)
    question = f"apt-get -qq update && apt-cache depends {HEADERS}"
    container = containers.create(client, lab, host, image=image, labels={}, command=["sh", "-c", question])
    try:
        containers.put(container, "/etc/apt/sources.list.d", {"debian.sources": sources()})
        containers.start(container)
        status = container.wait(timeout=ANSWER_SECONDS)["StatusCode"]
        output = container.logs().decode(errors="replace")
    finally:
        container.remove(force=True)
    match = RELEASE.search(output)
    if status or match is None:
        hint = "check that containers of this machine reach its Debian archive (docker run ... apt-get update)"
        raise LabError(failed("asking Debian's archive for its kernel", f"{question} exited {status}", output, hint))
    return match[1]


if __name__ == "__main__":
    print(up(make_lab(*sys.argv[1:])))
