"""The lab's images: real Ubuntu and Rocky Linux where a registry answers, else one base from Debian's archive."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpucheck.lab.model import IMAGES, LABEL, fingerprint
from gpucheck.lab.system import LabError, failed, install, root_prefix, run, say
from gpucheck.processes.temporary import temporary_folder

if TYPE_CHECKING:
    from docker import DockerClient


SUITE = "bookworm"
ARCHIVE_VARIABLE = "GPUCHECK_LAB_ARCHIVE"
DEFAULT_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGE_LIST = re.compile(r"'(\S+?)/dists/(\S+?)/[^/ ]+/binary-")


class AptSource(NamedTuple):
    """One archive of an apt source."""

    uri: str
    suite: str


def read_sources() -> list[AptSource]:
    """The machine's apt sources, as apt itself reads them; none on a machine without apt."""
    apt = shutil.which("apt-get")
    if apt is None:
        return []
    lists = run([apt, "--print-uris", "update"], what="reading this machine's apt sources")
    return [AptSource(*found) for found in dict.fromkeys(PACKAGE_LIST.findall(lists))]


def security_archive(sources: list[AptSource]) -> AptSource:
    """Where the security updates of the suite are: the machine's own source of them, else next to its archive."""
    suite = f"{SUITE}-security"
    own = next(
        (s for s in sources if s.uri.endswith("/debian-security") and s.uri.startswith(("http://", "https://"))), None
    )
    if own is not None and ARCHIVE_VARIABLE not in os.environ:
        return AptSource(own.uri, suite)
    main = debian_archive(sources)
    return AptSource(f"{(main.uri if main else 'http://deb.debian.org/debian').removesuffix('/')}-security", suite)


def debian_archive(sources: list[AptSource]) -> AptSource | None:
    """Where to bootstrap Debian from: the environment's value, else the machine's own archive, else None (default).

    A machine on another Debian release still reaches every suite of the archive that it uses.
    """
    given = os.environ.get(ARCHIVE_VARIABLE)
    if given:
        return AptSource(given.rstrip("/"), SUITE)
    debian = [s for s in sources if s.uri.rstrip("/").endswith("/debian") and s.uri.startswith(("http://", "https://"))]
    exact = [s for s in debian if s.suite == SUITE]
    chosen = next(iter(exact or debian), None)
    return None if chosen is None else AptSource(chosen.uri, SUITE)


Flavour = Literal["real", "posing"]
PROBE_SECONDS = 4
REAL = {"apt-host": "ubuntu:22.04", "dnf-host": "rockylinux:9", "mirror": "ubuntu:22.04"}
# Python of the hosts, for the wheelhouse. Rocky Linux 9 also gets 3.11: its 3.9 is too old for gpucheck.
PYTHONS: dict[Flavour, tuple[str, ...]] = {"real": ("3.10", "3.11"), "posing": ("3.11",)}
# Raise when what bootstrap() puts into the base changes.
BASE_RECIPE = "1"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Recipe:
    """How one image is built."""

    role: str
    dockerfile: str
    target: str | None
    base: str

    def tag(self, context: Path) -> str:
        """The image's name: the same recipe on the same files is the same image."""
        parts: list[str | Path] = [self.role, self.base, context / self.dockerfile, context / "build"]
        if self.role != "mirror":
            parts += [context / "rootfs", context / "pose"]
            # What one host alone has.
            parts += [context / self.role] if (context / self.role).is_dir() else []
        return f"{IMAGES}/{self.role}:{fingerprint(parts)}"


def recipes(flavour: Flavour, base: str) -> tuple[Recipe, ...]:
    real = flavour == "real"
    mirror = Recipe("mirror", "Dockerfile.mirror", None, REAL["mirror"] if real else base)
    if real:
        files = {"apt-host": "Dockerfile.ubuntu", "dnf-host": "Dockerfile.rocky"}
        return (*(Recipe(role, file, None, REAL[role]) for role, file in files.items()), mirror)
    return (*(Recipe(role, "Dockerfile.debian", role, base) for role in ("apt-host", "dnf-host")), mirror)


def ensure_images(client: "DockerClient", root: Path, known: Flavour | None) -> tuple[Flavour, dict[str, str]]:
    """Every image of the lab, built where it is missing: the flavour, and the image name by role.

    known: the flavour that the lab's containers already have; then the registry is not queried again.
    """
    context = root / "images/lab"
    source = debian_archive(read_sources())
    base = base_tag(source)
    have = own_tags(client)
    flavours: tuple[Flavour, ...] = (known,) if known else ("real", "posing")
    for flavour in flavours:
        wanted = {r.role: r.tag(context) for r in recipes(flavour, base)}
        if have.issuperset(wanted.values()):
            return flavour, wanted
    flavour = known or ("real" if registry_answers() and pulled(client) else "posing")
    if flavour == "posing" and base not in have:
        bootstrap(client, base, source)
    missing = [r for r in recipes(flavour, base) if r.tag(context) not in have]
    say(f"building the lab's images: {', '.join(r.role for r in missing)}")
    # Plain http needs no CA (apt checks signatures), and serving one asks for a way from the build to this machine.
    secure = flavour == "real" or (source is not None and source.uri.startswith("https:"))
    with certificates(client, private_certificates() if secure else b"") as ca_url:
        # Two hosts share their first layers: the builder finds them when the second comes after the first.
        hosts = [r for r in missing if r.role != "mirror"]
        others = [r for r in missing if r.role == "mirror"]
        with ThreadPoolExecutor(2) as pool:
            for job in [pool.submit(build_all, client, context, some, ca_url) for some in (hosts, others)]:
                job.result()
    made = {r.role: r.tag(context) for r in recipes(flavour, base)}
    drop_stale(client, {*made.values(), base})
    return flavour, made


def base_tag(source: AptSource | None) -> str:
    return f"{IMAGES}/base:{fingerprint([BASE_RECIPE, SUITE, source.uri if source else ''])}"


def ensure_base(client: "DockerClient") -> str:
    """The Debian base, made when it is not there; returns its name."""
    source = debian_archive(read_sources())
    tag = base_tag(source)
    if not client.images.list(name=tag):
        bootstrap(client, tag, source)
    return tag


def drop_stale(client: "DockerClient", wanted: set[str]) -> None:
    """Remove lab images that newer ones have replaced, unless a lab's container still runs on one."""
    containers = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    used = {str(container.attrs["Config"]["Image"]) for container in containers}
    for tag in sorted(own_tags(client) - wanted - used):
        client.images.remove(tag)


def own_tags(client: "DockerClient") -> set[str]:
    """The tags of the lab's images."""
    return {tag for image in client.images.list(name=f"{IMAGES}/*") for tag in image.tags}


def registry_answers() -> bool:
    """Does a container registry answer the engine? One short question; the answer holds for the run."""
    import docker
    import docker.errors

    asking = docker.from_env(timeout=PROBE_SECONDS)
    try:
        asking.images.get_registry_data(REAL["apt-host"])
    except (docker.errors.DockerException, OSError):
        return False
    finally:
        asking.close()
    return True


def pulled(client: "DockerClient") -> bool:
    """Pull the real systems' images. False, with a message, if the registry responds but does not deliver."""
    import docker.errors

    for name in sorted(set(REAL.values())):
        say(f"pulling {name}: a lab host is built on it")
        repository, _, tag = name.partition(":")
        try:
            client.images.pull(repository, tag=tag)
        except (docker.errors.DockerException, OSError) as error:
            say(f"cannot pull {name} ({error}): building on Debian's archive instead, presenting itself as it")
            return False
    return True


def bootstrap(client: "DockerClient", tag: str, source: AptSource | None) -> None:
    """Make the Debian base with debootstrap and import it as an image."""
    if shutil.which("debootstrap") is None:
        install(
            ["debootstrap", "debian-archive-keyring"],
            "no container registry answers, so the lab's base is made from Debian's archive",
        )
    sudo = root_prefix("making the lab's base image")
    say("making the lab's base image from Debian's archive: no container registry answers (about a minute)")
    options = [f"--keyring={DEFAULT_KEYRING}"] if Path(DEFAULT_KEYRING).exists() else []
    # Not /tmp: debootstrap needs device nodes and programs, which /tmp is often mounted without.
    work = Path(tempfile.mkdtemp(prefix="gpucheck-base-", dir="/var/tmp"))
    try:
        words: list[str | Path] = [*sudo, "debootstrap", "--variant=minbase", *options, SUITE, work / "root"]
        hint = f"check that this machine reaches {source.uri if source else 'the Debian archive'}; then run this again"
        run([*words, *([source.uri] if source else [])], what="making the lab's base image", hint=hint)
        import_tree(client, [*sudo, "tar", "-C", str(work / "root"), "--one-file-system", "-c", "."], tag)
    finally:
        run([*sudo, "rm", "-rf", "--one-file-system", work], what="cleaning up after debootstrap")


def import_tree(client: "DockerClient", tar: list[str], tag: str) -> None:
    repository, _, version = tag.partition(":")
    packing = subprocess.Popen(tar, stdout=subprocess.PIPE)
    assert packing.stdout is not None  # noqa: S101 - PIPE above
    answer = client.api.import_image_from_stream(
        packing.stdout, repository=repository, tag=version, changes=[f"LABEL {LABEL}=images"]
    )
    if packing.wait():
        raise LabError(f"packing the lab's base image failed: {' '.join(tar)} exited {packing.returncode}")
    if "errorDetail" in str(answer):
        raise LabError(failed("importing the lab's base image", "the engine rejected it", str(answer)))


def build_all(client: "DockerClient", context: Path, some: list[Recipe], ca_url: str) -> None:
    for recipe in some:
        options = {"path": str(context), "dockerfile": recipe.dockerfile, "target": recipe.target}
        arguments = {"BASE": recipe.base, "CA_URL": ca_url}
        build_image(client, recipe.tag(context), arguments, labels={LABEL: "images"}, **options)


def build_image(client: "DockerClient", tag: str, arguments: dict[str, str], **options: Any) -> None:
    """Build an image with the engine's own builder. Raises LabError with the end of its output."""
    import docker.errors

    try:
        client.images.build(tag=tag, buildargs={**arguments, **proxies()}, rm=True, forcerm=True, **options)
    except docker.errors.BuildError as error:
        log = "".join(str(line.get("stream", "")) for line in error.build_log)
        hint = "check that the engine reaches its package archive; then run this again"
        raise LabError(failed(f"building {tag}", error.msg, f"{log}\n{error.msg}", hint)) from error


def proxies() -> dict[str, str]:
    """The proxies of this machine. The engine keeps these few names out of an image's history by itself."""
    return {name: value for name in PROXIES if (value := os.environ.get(name) or os.environ.get(name.upper()))}


# A private CA


def private_certificates() -> bytes:
    """The CA certificates that this machine's owner added, as one PEM file; empty where there are none."""
    files = sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    names = (os.environ.get(name) for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
    files += [Path(name) for name in names if name]
    return b"\n".join(dict.fromkeys(path.read_bytes() for path in files if path.is_file()))


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line for each on stderr."""

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


@contextmanager
def certificates(client: "DockerClient", bundle: bytes) -> Iterator[str]:
    """Serve the private CA to the builds that run inside this block; yields its URL, empty where there is none.

    A file, an argument or a layer would stay in the images. What is fetched and removed in one step does not.
    """
    if not bundle:
        yield ""
        return
    with temporary_folder("ca") as folder:
        (Path(folder) / "ca.pem").write_bytes(bundle)
        with served(client, Path(folder)) as url:
            yield f"{url}/ca.pem"


@contextmanager
def served(client: "DockerClient", folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a folder to the engine's builds inside this block; yields its URL, without a slash at the end.

    port: which one if it is free. The URL is part of what the builder compares, so that a steady port keeps its cache.
    """
    gateway = client.networks.get("bridge").attrs["IPAM"]["Config"][0].get("Gateway") or "172.17.0.1"
    handler = partial(QuietHandler, directory=str(folder))
    try:
        server = ThreadingHTTPServer((gateway, port), handler)
    except OSError:
        server = ThreadingHTTPServer((gateway, 0), handler)
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{gateway}:{server.server_address[1]}"
        finally:
            server.shutdown()
