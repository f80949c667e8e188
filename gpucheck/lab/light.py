"""Light hosts: a fleet of machines in containers whose PID 1 is sshd, for measuring what a controller does with many.

Each has the apt host's image, packages and simulated hardware. It has no systemd, of which an engine's machine only
carries about twenty: a stub takes the place of systemctl.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpucheck.lab.containers import checked_output, create, lab_containers, put, put_archive, start, wait_for
from gpucheck.lab.hosts import connect_host, machine_archive
from gpucheck.lab.images import Flavour
from gpucheck.lab.model import IMAGES, LABEL_FLAVOUR, LABEL_STAMP, HostSpec, Lab, fingerprint
from gpucheck.lab.system import LabUsageError, say

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

IMAGE = "apt-host"
PROFILE, KERNEL = "p100-pcie-x2", "5.15.0-179-generic"
FIRST_OFFSET = 20
INIT = "/usr/lib/gpucheck-lab/light/init"
# PID 1 is sshd: where it ends, the engine starts the container again.
REBOOT_COMMAND = "kill 1"
STARTED_AT_ONCE = 4


def specs(lab: Lab, count: int, profile: str = PROFILE) -> tuple[HostSpec, ...]:
    """The hosts. Raises LabUsageError when the lab's subnet has too few addresses, or there is no such profile."""
    from gpucheck import simulator

    try:
        simulator.load(profile)
    except (LookupError, ValueError, OSError) as error:
        raise LabUsageError(str(error)) from None
    room = lab.subnet.num_addresses - 1 - FIRST_OFFSET
    if not 1 <= count <= room:
        raise LabUsageError(
            f"{count} light hosts do not fit: {lab.subnet} has addresses for 1 to {room}\n"
            "do: give fewer, or a larger subnet with --subnet"
        )
    names = (f"light-{number:03}" for number in range(1, count + 1))
    return tuple(HostSpec(name, IMAGE, profile, KERNEL, "gpu_light", FIRST_OFFSET + i) for i, name in enumerate(names))


def ensure_fleet(
    client: "DockerClient", lab: Lab, hosts: Sequence[HostSpec], flavour: Flavour, image: str, public_key: str
) -> str:
    """The hosts, running; returns the host key that they share.

    The first is made bare. The others are copies of the first as it is when they are made: provision it before, and
    a fleet comes up that is provisioned.
    """
    first, machine = hosts[0], machine_archive(hosts[0], flavour)
    files = lab.root / "images/lab/light"
    stamp = fingerprint([image, machine, public_key, files])
    fleet = lab_containers(client, lab.name)
    fleet = {name: one for name, one in fleet.items() if name.startswith(f"{lab.name}-light-")}
    for container in fleet.values():
        if container.labels.get(LABEL_STAMP) != stamp:
            say(f"the base of {container.name} has changed: creating it again, bare")
            container.remove(force=True, v=True)
    fleet = {name: one for name, one in fleet.items() if one.labels.get(LABEL_STAMP) == stamp}
    labels = {LABEL_STAMP: stamp, LABEL_FLAVOUR: flavour}
    pattern = fleet.get(lab.container(first.name))
    if pattern is None:
        pattern = make_host(client, lab, first, image, labels)
        put_archive(pattern, "/", machine)
        put(pattern, "/usr/lib/gpucheck-lab", {"light": files})
        put(pattern, "/usr/local/bin", {"systemctl": files / "systemctl"})
        start(pattern)
        connect_host(client, lab, first, pattern, public_key)
    ensure_running([pattern])
    missing = [host for host in hosts if lab.container(host.name) not in fleet and host is not first]
    if missing:
        say(f"making {len(missing)} light hosts as copies of {first.name}")
        pattern.commit(repository=pattern_name(), tag=lab.name)
        copy = f"{pattern_name()}:{lab.name}"
        with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            made = list(pool.map(lambda host: make_host(client, lab, host, copy, labels), missing))
        fleet.update((str(container.name), container) for container in made)
    ensure_running(list(fleet.values()))
    key = checked_output(
        pattern, "cat", "/etc/ssh/ssh_host_ed25519_key.pub", what=f"reading the host key of {first.name}"
    )
    return " ".join(key.split()[:2])


def make_host(client: "DockerClient", lab: Lab, host: HostSpec, image: str, labels: dict[str, str]) -> "Container":
    return create(
        client,
        lab,
        lab.container(host.name),
        hostname=host.name,
        image=image,
        ip=lab.ip(host),
        labels=labels,
        command=[INIT],
        tmpfs={"/run": "", "/run/lock": ""},
        restart_policy={"Name": "always"},
    )


def ensure_running(containers: Sequence["Container"]) -> None:
    """Start what does not run, and wait until each answers logins."""

    def ready(container: "Container") -> None:
        if container.status != "running":
            start(container)
        wait_for(container, "test", "-s", "/run/sshd.pid", what=f"booting {container.name}")

    with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
        list(pool.map(ready, containers))


def pattern_name() -> str:
    """The image that copies are made from; its tag is the lab's name."""
    return f"{IMAGES}/light-host"


def remove_pattern(client: "DockerClient", lab_name: str) -> list[str]:
    """Remove the image that the lab's copies were made from; returns what was removed, as text."""
    tag = f"{pattern_name()}:{lab_name}"
    if not any(tag in image.tags for image in client.images.list(name=f"{IMAGES}/*")):
        return []
    client.images.remove(tag)
    return [f"image {tag}"]
