"""Start a lab, remove it, report its state."""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucheck.lab import catalogue, containers
from gpucheck.lab import inventory as files
from gpucheck.lab.hosts import Ground, connect_host, ensure_host, machine_archive, stand_ins
from gpucheck.lab.images import PYTHONS, Flavour, ensure_images, own_tags
from gpucheck.lab.model import HOSTS, IMAGES, LABEL, LABEL_FLAVOUR, LABEL_STAMP, MIRROR, HostSpec, Lab, fingerprint
from gpucheck.lab.system import LabError, LabUsageError, engine, install, reachable, run, say
from gpucheck.lab.wheelhouse import ensure_wheelhouse
from gpucheck.simulator.compiler import CUDA, NVML
from gpucheck.simulator.nvml.library import exports, unsimulated_rows, version_script

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container


STAMP = "/srv/www/stamp"


def library_files() -> dict[str, bytes | Path]:
    """The C sources of the simulated NVML and CUDA driver libraries, and what each driver branch exports of NVML."""
    files: dict[str, bytes | Path] = {"nvml": NVML, "cuda": CUDA}
    for branch in sorted({package.version.split(".")[0] for package in catalogue.packages() if package.nvml}):
        chosen = exports(branch)
        files[f"exports/{branch}/unsimulated.inc"] = unsimulated_rows(chosen).encode()
        files[f"exports/{branch}/exports.map"] = version_script(chosen).encode()
    return files


def mirror_stamp(lab: Lab, image: str, wheels: Path) -> str:
    """Return what a mirror is made of: a folder that was made again at the same path is another one."""
    return fingerprint([image, str(lab.mirror_ip), str(wheels), str(wheels.stat().st_ino)])


def ensure_mirror(client: "DockerClient", lab: Lab, image: str, wheels: Path) -> str:
    """Start the mirror with the content of the catalogue. Returns the fingerprint of its signing key.

    The key is made in the container when it first runs and never leaves it.
    """
    stamp = mirror_stamp(lab, image, wheels)
    container = containers.kept(containers.lab_containers(client, lab.name).get(lab.container(MIRROR.name)), stamp)
    if container is None:
        labels, volumes = {LABEL_STAMP: stamp}, {str(wheels): {"bind": "/srv/www/wheels", "mode": "ro"}}
        options = {"init": True, "restart_policy": {"Name": "unless-stopped"}}
        container = containers.create(client, lab, MIRROR, image=image, labels=labels, volumes=volumes, **options)
    containers.start(container)
    containers.wait_for(container, "true", what="starting the mirror")
    fill(container, lab.root)
    return containers.checked_output(
        container, "cat", "/srv/keys/good/fingerprint", what="reading the mirror's key"
    ).strip()


def fill(container: "Container", root: Path) -> None:
    """Build the repositories unless the container holds exactly these already."""
    images = root / "images/lab"
    content = catalogue.to_json()
    stamp = fingerprint([content, *library_files().values(), images / "payload", images / "mirror"])
    words = ("sh", "-c", f"cat {STAMP} 2>/dev/null || echo none")
    if containers.checked_output(container, *words, what="reading the mirror's state").strip() == stamp:
        return
    say(f"building and signing {len(catalogue.packages())} stub packages")
    programs = {program.name: program for program in sorted((images / "mirror").glob("*.py"))}
    sources = {"catalogue.json": content, **library_files(), "payload": images / "payload", **programs}
    containers.put(container, "/srv/build", sources)
    containers.checked_output(container, "python3", "/srv/build/build_repos.py", what="building the stub packages")
    containers.put(container, "/srv/www", {"stamp": stamp.encode()})


SCHEMA = "gpucheck.lab/1"


def up(lab: Lab, hosts: Sequence[HostSpec] = HOSTS) -> Path:
    """Bring the lab up, or find that it is; returns the inventory's path. Raises LabError."""
    with one_at_a_time(lab.root):
        client = engine()
        refuse_kind(client, lab, light=False)
        ground = prepare(client, lab)
        # In this thread: msgspec 0.22 may crash where two threads are the first to read one kind of struct.
        machines = {host: machine_archive(host, stand_ins(host, ground.flavour)) for host in hosts}
        with ThreadPoolExecutor(len(hosts)) as pool:
            jobs = {
                host: pool.submit(ensure_host, client, lab, host, ground, machine) for host, machine in machines.items()
            }
            keys = {str(lab.ip(host)): job.result() for host, job in jobs.items()}
        inventory = files.inventory(lab, ground.flavour, hosts)
        stack_spec = files.stack_spec(lab, ground.key_fingerprint, ground.torch)
    return write_down(lab, inventory, stack_spec, keys)


def up_light(lab: Lab, count: int, profile: str | None = None) -> Path:
    """Bring up a lab of this many light hosts, or make it that many; returns the inventory's path. Raises LabError."""
    hosts = specs(lab, count, profile or PROFILE)
    with one_at_a_time(lab.root):
        client = engine()
        refuse_kind(client, lab, light=True)
        ground = prepare(client, lab)
        key = ensure_fleet(client, lab, hosts, ground)
        inventory = files.inventory(lab, ground.flavour, hosts, reboot_command=REBOOT_COMMAND)
        stack_spec = files.stack_spec(lab, ground.key_fingerprint, "none")
    return write_down(lab, inventory, stack_spec, {str(lab.ip(host)): key for host in hosts})


def prepare(client: "DockerClient", lab: Lab) -> Ground:
    """Images, wheels, network, login key and mirror."""
    # Asked before anything is built, made only after: a failed build leaves no network behind.
    containers.check_network(client, lab)
    # The wheels come over the network, the images mostly not: side by side they cost the longer of the two.
    with ThreadPoolExecutor(1) as pool:
        wheels = pool.submit(ensure_wheelhouse, lab.root, PYTHONS["posing"])
        with containers.engine_errors("building the lab's images"):
            flavour, images = ensure_images(client, lab.root, known_flavour(client, lab.name))
        wheelhouse = wheels.result()
    if PYTHONS[flavour] != PYTHONS["posing"]:
        wheelhouse = ensure_wheelhouse(lab.root, PYTHONS[flavour])
    containers.ensure_network(client, lab)
    public_key = login_key(lab.directory)
    key_fingerprint = ensure_mirror(client, lab, images["mirror"], wheelhouse.folder)
    return Ground(flavour, images, public_key, key_fingerprint, wheelhouse.torch_version)


def write_down(lab: Lab, inventory: dict[str, Any], stack_spec: dict[str, Any], keys: dict[str, str]) -> Path:
    """Write what Ansible and ssh need; returns the inventory's path. keys: public host key by address."""
    comment = f"Written by `gpucheck lab up`; gone with `gpucheck lab down --name {lab.name}`."
    files.write_if_changed(lab.directory / "known_hosts", files.known_hosts(keys))
    files.write_stack_spec(lab.directory, files.dump(stack_spec, comment))
    files.write_if_changed(lab.directory / "inventory.yml", files.dump(inventory, comment))
    return lab.directory / "inventory.yml"


def refuse_kind(client: "DockerClient", lab: Lab, *, light: bool) -> None:
    """Raise LabUsageError where the lab is up with hosts of the other kind."""
    others = {lab.container(host.name) for host in HOSTS} if light else {f"{lab.name}-light-001"}
    if others & set(containers.lab_containers(client, lab.name)):
        raise LabUsageError(
            f"the lab {lab.name} is up with {'two whole' if light else 'light'} hosts\n"
            f"do: give the other lab a name of its own with --name, or gpucheck lab down --name {lab.name}"
        )


def known_flavour(client: "DockerClient", name: str) -> Flavour | None:
    found = {container.labels.get(LABEL_FLAVOUR) for container in containers.lab_containers(client, name).values()}
    return "real" if "real" in found else "posing" if "posing" in found else None


def login_key(directory: Path) -> str:
    """The public half of the lab's login key, made with the directory when it is not there."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    private, public = directory / "id_ed25519", directory / "id_ed25519.pub"
    if not (private.exists() and public.exists()):
        if shutil.which("ssh-keygen") is None:
            install(["openssh-client"], "the lab hosts are reached over SSH")
        for path in (private, public):
            path.unlink(missing_ok=True)
        words: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpucheck-lab", "-f", private]
        run(words, what="making the lab's login key")
    return public.read_text(encoding="ascii")


def down(name: str, root: Path, *, images: bool) -> list[str]:
    """Remove the lab; return what was removed, as text. Images stay unless requested: they are the slow part."""
    removed = []
    with one_at_a_time(root):
        client = reachable()
        directory = root / ".lab" / name
        if client is None and not directory.exists():
            return []
        if client is None:
            client = engine()
        with containers.engine_errors(f"taking down the lab {name}"):
            for container in containers.lab_containers(client, name).values():
                container.remove(force=True, v=True)
                removed.append(f"container {container.name}")
            removed += remove_pattern(client, name)
            network = containers.find_network(client, name)
            if network is not None:
                network.remove()
                removed.append(f"network {network.name}")
        if images:
            removed += remove_images(client)
        if directory.exists():
            shutil.rmtree(directory)
            removed.append(str(directory))
    return removed


def remove_images(client: "DockerClient") -> list[str]:
    """Remove the lab's images. Raises LabError while another lab runs on them."""
    others = client.containers.list(all=True, filters={"label": LABEL})
    if others:
        names = ", ".join(sorted({str(container.labels[LABEL]) for container in others}))
        raise LabError(
            f"the lab's images stay: the lab {names} runs on them\ndo: gpucheck lab down --name {names.split(', ')[0]}"
        )
    # A base goes last: nothing may be built on it any more.
    tags = sorted(own_tags(client), key=lambda tag: tag.startswith(f"{IMAGES}/base:"))
    with containers.engine_errors("removing the lab's images"):
        for tag in tags:
            client.images.remove(tag)
    return [f"image {tag}" for tag in tags]


def status(name: str, root: Path) -> dict[str, Any]:
    """How the lab is, for people and programs: its state, its containers, its inventory."""
    client = reachable()
    there = containers.lab_containers(client, name) if client else {}
    rows = []
    for container in there.values():
        networks = container.attrs["NetworkSettings"]["Networks"].values()
        rows.append(
            {
                "name": container.name,
                "host": container.attrs["Config"]["Hostname"],
                "state": container.status,
                "address": next((str(network["IPAddress"]) for network in networks if network["IPAddress"]), None),
                "flavour": container.labels.get(LABEL_FLAVOUR),
            }
        )
    inventory = root / ".lab" / name / "inventory.yml"
    running = sum(row["state"] == "running" for row in rows)
    # The mirror is in no inventory.
    whole = inventory.exists() and running == inventory.read_text(encoding="utf-8").count("ansible_host: ") + 1
    return {
        "schema": SCHEMA,
        "name": name,
        "engine": client is not None,
        "state": "up" if whole else "partial" if rows else "down",
        "containers": sorted(rows, key=lambda row: str(row["name"])),
        "inventory": str(inventory) if inventory.exists() else None,
    }


@contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Hold the checkout's lab lock: two `lab up` at once would build the same things into each other."""
    folder = root / ".lab"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another gpucheck lab command to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Each has the apt host's image, packages and simulated hardware. It has no systemd, of which an engine's machine only
# carries about twenty: a stub takes the place of systemctl.
IMAGE = "apt-host"
PROFILE, KERNEL = "p100-pcie-x2", "5.15.0-179-generic"
FIRST_OFFSET = 20
INIT = "/usr/lib/gpucheck-lab/light/init"
# PID 1 is sshd: where it ends, the engine starts the container again.
REBOOT_COMMAND = "kill 1"
STARTED_AT_ONCE = 4
PATTERN = f"{IMAGES}/light-host"


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


def ensure_fleet(client: "DockerClient", lab: Lab, hosts: Sequence[HostSpec], ground: Ground) -> str:
    """The hosts, running; returns the host key that they share.

    The first is made bare. The others are copies of the first as it is when they are made: provision it before, and
    a fleet comes up that is provisioned.
    """
    first, machine = hosts[0], machine_archive(hosts[0], stand_ins(hosts[0], ground.flavour))
    files, image = lab.root / "images/lab/light", ground.images[IMAGE]
    stamp = fingerprint([image, machine, ground.public_key, files])
    seen = {name: containers.kept(one, stamp) for name, one in light_containers(client, lab).items()}
    fleet = {name: one for name, one in seen.items() if one is not None}
    labels = {LABEL_STAMP: stamp, LABEL_FLAVOUR: ground.flavour}
    pattern = fleet.get(lab.container(first.name))
    if pattern is None:
        pattern = make_host(client, lab, first, image, labels)
        containers.put_archive(pattern, "/", machine)
        containers.put(pattern, "/usr/lib/gpucheck-lab", {"light": files})
        containers.put(pattern, "/usr/local/bin", {"systemctl": files / "systemctl"})
        containers.start(pattern)
        connect_host(client, lab, first, pattern, ground.public_key)
    ensure_running([pattern])
    missing = [host for host in hosts if lab.container(host.name) not in fleet and host is not first]
    if missing:
        say(f"making {len(missing)} light hosts as copies of {first.name}")
        pattern.commit(repository=PATTERN, tag=lab.name)
        copy = f"{PATTERN}:{lab.name}"
        with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            made = list(pool.map(lambda host: make_host(client, lab, host, copy, labels), missing))
        fleet.update((str(container.name), container) for container in made)
    ensure_running(list(fleet.values()))
    return containers.host_key(pattern)


def light_containers(client: "DockerClient", lab: Lab) -> "dict[str, Container]":
    """The hosts by name, without the mirror: the lab's own name may end with ``-light``."""
    mirror = lab.container(MIRROR.name)
    return {name: one for name, one in containers.lab_containers(client, lab.name).items() if name != mirror}


def make_host(client: "DockerClient", lab: Lab, host: HostSpec, image: str, labels: dict[str, str]) -> "Container":
    options = {"command": [INIT], "tmpfs": {"/run": "", "/run/lock": ""}, "restart_policy": {"Name": "always"}}
    return containers.create(client, lab, host, image=image, labels=labels, **options)


def ensure_running(hosts: Sequence["Container"]) -> None:
    def ready(container: "Container") -> None:
        containers.start(container)
        containers.wait_for(container, "test", "-s", "/run/sshd.pid", what=f"booting {container.name}")

    with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
        list(pool.map(ready, hosts))


def remove_pattern(client: "DockerClient", lab_name: str) -> list[str]:
    """Remove the image that the lab's copies were made from; returns what was removed, as text."""
    tag = f"{PATTERN}:{lab_name}"
    if tag not in own_tags(client):
        return []
    client.images.remove(tag)
    return [f"image {tag}"]
