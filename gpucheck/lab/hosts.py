"""The lab's hosts: bare machines in containers, each with the simulated hardware of its profile."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucheck.lab import catalogue, containers
from gpucheck.lab.images import Flavour
from gpucheck.lab.model import LABEL_FLAVOUR, LABEL_STAMP, HostSpec, Lab, fingerprint
from gpucheck.lab.system import is_cgroup_v2
from gpucheck.processes.temporary import temporary_folder

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

MACHINE = "usr/share/gpucheck-lab/machine"
KERNEL_RELEASE = "usr/lib/gpucheck-lab/kernel-release"
BARE_METAL = "usr/share/gpucheck-lab/bare-metal"
POWER_ON = "/usr/lib/gpucheck-lab/power-on"
POSES = {
    "apt-host": "Debian 12 presenting itself as Ubuntu 22.04",
    "dnf-host": "Debian 12 presenting itself as Rocky Linux 9",
}
STAND_INS = ("DKMS, initramfs and the loading of kernel modules", "stub NVIDIA packages")
BARE_METAL_STAND_INS = ("bare metal, its boot and GRUB's disk",)


def stand_ins(host: HostSpec, flavour: Flavour) -> tuple[str, ...]:
    """What on this host is not the real thing, in addition to its hardware."""
    bare = BARE_METAL_STAND_INS if host.bare_metal else ()
    return (*([POSES[host.image]] if flavour == "posing" else []), *STAND_INS, *bare)


@dataclass(frozen=True)
class Ground:
    """What hosts of any kind stand on. key_fingerprint: of the mirror. torch: the version in the wheelhouse."""

    flavour: Flavour
    images: dict[str, str]
    public_key: str
    key_fingerprint: str
    torch: str


def ensure_host(client: "DockerClient", lab: Lab, host: HostSpec, ground: Ground, machine: bytes) -> str:
    """The host, running, with its login and its package source. Returns its host key, ``ssh-ed25519 AAAA...``.

    machine: of :func:`machine_archive`.
    """
    # It changes if a host must be created again: its image, its address, or the machine that it simulates.
    stamp = fingerprint([ground.images[host.image], str(lab.ip(host)), machine])
    container = containers.kept(containers.lab_containers(client, lab.name).get(lab.container(host.name)), stamp)
    if container is None:
        container = make_host(client, lab, host, ground, stamp)
        containers.put_archive(container, "/", machine)
    # Each time: the key or the mirror may have been replaced since.
    containers.start(container)
    connect_host(client, lab, host, container, ground.public_key)
    containers.wait_for(container, "systemctl", "is-active", "multi-user.target", what=f"booting {host.name}")
    return containers.host_key(container)


def make_host(client: "DockerClient", lab: Lab, host: HostSpec, ground: Ground, stamp: str) -> "Container":
    """Create a host whose PID 1 is systemd, with no more rights than any container.

    One that appears as bare metal may mount: it puts its hardware over what it sees of the machine below.
    """
    options, labels = host_options(client, {}), {LABEL_STAMP: stamp, LABEL_FLAVOUR: ground.flavour}
    if host.bare_metal:
        options |= {"cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined"], "command": [POWER_ON]}
    return containers.create(client, lab, host, image=ground.images[host.image], labels=labels, **options)


def host_options(client: "DockerClient", volumes: dict[str, dict[str, str]]) -> dict[str, Any]:
    """What a container needs to be a host: systemd as PID 1, reboots. volumes: in addition to that."""
    # Not measured: no machine with cgroup v2 alone was at hand.
    alone = is_cgroup_v2(client)
    cgroup = {"/sys/fs/cgroup": {"bind": "/sys/fs/cgroup", "mode": "rw" if alone else "ro"}}
    return {
        **({"cgroupns": "host"} if alone else {}),
        "volumes": {**cgroup, **volumes},
        "tmpfs": {"/run": "", "/run/lock": ""},
        # What makes a reboot a reboot: systemd ends, the engine starts the container again.
        "restart_policy": {"Name": "always"},
        "shm_size": "1g",
    }


def machine_archive(host: HostSpec, stand_ins: Sequence[str]) -> bytes:
    """A tar of the bare machine of the host's profile, and of the kernel release that it reports.

    No driver is installed or loaded, and no fabric is up: that is for packages, boots and daemons to do.
    """
    from gpucheck import simulator

    profile, faults = simulator.load(host.profile), tuple(host.faults)
    recipe = simulator.Recipe(
        profile=profile, driver=None, kernel=host.kernel, stand_ins=tuple(stand_ins), faults=faults
    )
    with temporary_folder("machine") as temporary:
        folder = Path(temporary, "machine")
        simulator.write_machine(recipe, folder)
        mark: dict[str, bytes | Path] = {BARE_METAL: b""} if host.bare_metal else {}
        return containers.archive({MACHINE: folder, KERNEL_RELEASE: f"{host.kernel}\n".encode(), **mark})


def connect_host(client: "DockerClient", lab: Lab, host: HostSpec, container: "Container", public_key: str) -> None:
    """Give the host the lab's login key, and the mirror as the source of what its operating system would supply."""
    mirror = client.containers.get(lab.container("mirror"))
    files: dict[str, bytes | Path] = {}
    repository = next(
        r
        for n, r in catalogue.repositories().items()
        if n.startswith("os-") and (r.kind == "deb") == (host.image == "apt-host")
    )
    url = f"http://{lab.mirror_ip}/{repository.path}/"
    key = containers.checked_output(mirror, "cat", "/srv/keys/good/key.asc", what="reading the mirror's key").encode()
    if repository.kind == "deb":
        files["etc/apt/keyrings/gpucheck-lab-os.asc"] = key
        line = f"deb [signed-by=/etc/apt/keyrings/gpucheck-lab-os.asc] {url} /\n"
        files["etc/apt/sources.list.d/gpucheck-lab-os.list"] = line.encode()
    else:
        files["etc/pki/rpm-gpg/RPM-GPG-KEY-gpucheck-lab-os"] = key
        files["etc/yum.repos.d/gpucheck-lab-os.repo"] = (
            f"[gpucheck-lab-os]\nname=What Rocky Linux and EPEL would supply (SIMULATED)\nbaseurl={url}\nenabled=1\n"
            "gpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpucheck-lab-os\n"
        ).encode()
    containers.put(container, "/", files)
    containers.put(container, "/home/ops/.ssh", {"authorized_keys": public_key.encode()})
