"""Build an image: choose the base, write the context, build, extract the SBOM, check the size budget."""

import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.images.context import ImagePlan, assemble, build_time
from gpucheck.images.fill import lock_path
from gpucheck.images.versions import CUSTOM, LABEL, Base, Versions, read_versions, require_platform
from gpucheck.lab.images import (
    PROXIES,
    debian_archive,
    ensure_base,
    private_certificates,
    read_sources,
    registry_answers,
    security_archive,
    served,
)
from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import LabError, failed, run, say
from gpucheck.lab.wheelhouse import pip


def ensure_wheels(root: Path, name: str, python: str, places: list[str]) -> Path:
    """Return the directory with every wheel of a variant's lock. places: pip options that name sources of wheels.

    Raises LabError that names the wheel missing from the index.
    """
    folder = root / ".cache/images" / f"{name}-py{python.replace('.', '')}"
    folder.mkdir(parents=True, exist_ok=True)
    locks = [lock_path(root, name), lock_path(root, "tools")]
    stamp, stamp_file = fingerprint([*locks, python]), folder / "wheels.stamp"
    if stamp_file.exists() and stamp_file.read_text() == stamp:
        return folder
    stamp_file.unlink(missing_ok=True)
    say(f"downloading the wheels of {name} for Python {python}")
    for lock in locks:
        words = pip("download", "--no-deps", "--only-binary=:all:", "--find-links", folder, "--dest", folder)
        hint = (
            "the index lacks a wheel of the lock, or cannot be reached: name another with --index URL or --find-links "
            "DIR (pip config list shows the settings of pip)"
        )
        # The Python that runs pip evaluates markers in the lock, so it downloads for its own platform only.
        run(
            [*words, "--python-version", python, *places, "--requirement", lock],
            what=f"downloading the wheels of {name}",
            hint=hint,
        )
    stamp_file.write_text(stamp)
    return folder


def index_options(indexes: tuple[str, ...], find_links: tuple[str, ...]) -> list[str]:
    """Return options of both pip and uv. Raises LabError for a missing directory."""
    for place in find_links:
        if "://" not in place and not Path(place).is_dir():
            raise LabError(f"--find-links {place}: no such directory\ndo: name a directory of wheels, or its URL")
    options = [word for index in indexes for word in ("--extra-index-url", index)]
    return options + [word for place in find_links for word in ("--find-links", place)]


if TYPE_CHECKING:
    from docker import DockerClient

OLDEST_API = (1, 30)  # multi-stage builds with arguments before FROM: engine 17.06
STAGE = "gpucheck/build-stage"
SBOM = "/opt/venv/share/gpucheck/sbom.cdx.json"
MEGABYTE = 10**6
# Path of the files served to a build: constant, as the builder compares the URL before it uses a cached layer.
PORTS = range(42000, 48000)


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build. places: pip options that name the sources of wheels.

    fresh: rebuild with the packages that the base's archive has now.
    """

    base: str | None = None
    places: tuple[str, ...] = ()
    fresh: bool = False


@dataclass(frozen=True)
class Built:
    """An existing image. built False: it was up to date."""

    tag: str
    size_bytes: int
    built: bool
    sbom: Path


def build(client: "DockerClient", root: Path, name: str, options: BuildOptions) -> Built:
    """Build one variant unless an image with exactly this content exists. Raises LabError."""
    require_api(client)
    versions = read_versions(root)
    require_platform(client, versions, name)
    plan = plan_of(client, root, versions, name, options.base)
    folder = assemble(plan)
    if not options.fresh and existing(client, plan):
        say(f"{plan.tag}: up to date")
        return Built(plan.tag, size_of(client, plan.tag), built=False, sbom=plan.sbom)
    # The time of the last fresh build: with another value, the builder's cache would give older packages.
    before = old_labels(client, plan).get(f"{LABEL}.updates", "")
    updates = f"{build_time():%Y%m%d%H%M%S}" if options.fresh else before
    replaced = image_id(client, plan.tag)
    with files_for_build(client, plan, options) as arguments:
        say(f"building {plan.tag} on {plan.base_image}")
        wanted = {**plan.arguments(), **arguments, **proxies(), **({"UPDATES": updates} if updates else {})}
        # First the stage, with its own tag: it is reused, and a change of gpucheck adds one small layer.
        for target, tag in (("build", f"{STAGE}:{name}"), ("runtime", plan.tag)):
            build_target(client, folder, target, tag, wanted, plan.labels(updates) if target == "runtime" else {})
    drop_replaced(client, plan.tag, replaced)
    plan.sbom.write_bytes(read_file(client, plan.tag, SBOM))
    hold_budget(client, plan)
    return Built(plan.tag, size_of(client, plan.tag), built=True, sbom=plan.sbom)


def require_api(client: "DockerClient") -> None:
    """Raise LabError for an engine that cannot build these Dockerfiles."""
    version = client.version()
    numbers = tuple(int(part) for part in str(version["ApiVersion"]).split("."))
    if numbers < OLDEST_API:
        raise LabError(
            f"the Docker engine {version.get('Version', '')} is too old: its API is {version['ApiVersion']}, and "
            "builds in two stages need 1.30 (engine 17.06)\n"
            "do: install a newer engine, or name another with DOCKER_HOST"
        )


def old_labels(client: "DockerClient", plan: ImagePlan) -> dict[str, str]:
    """Return the labels of the image with the plan's tag; empty if there is no such image."""
    import docker.errors

    try:
        return dict(client.images.get(plan.tag).labels)
    except docker.errors.ImageNotFound:
        return {}


def image_id(client: "DockerClient", tag: str) -> str | None:
    import docker.errors

    try:
        return str(client.images.get(tag).id)
    except docker.errors.ImageNotFound:
        return None


def plan_of(client: "DockerClient", root: Path, versions: Versions, name: str, given: str | None) -> ImagePlan:
    """Return the plan with its base: the given one, the pinned one, or the substitute if no registry responds."""
    import docker.errors

    if given is not None:
        same = versions.base.digest is not None and given.endswith(f"@{versions.base.digest}")
        name_ = versions.base.name if same else CUSTOM
        own = Base(name=name_, python=versions.base.python, image=given)
        return ImagePlan(root, versions, name, own, given, stand_in=False)
    pinned = versions.base.image or ""
    try:
        client.images.get(pinned)
    except docker.errors.ImageNotFound:
        if not registry_answers():
            say("no container registry responds: the base is built from Debian's archive, as tag and label state")
            base = ensure_base(client)
            return ImagePlan(root, versions, name, versions.stand_in, base, stand_in=True, security=security_line())
        pull(client, pinned)
    return ImagePlan(root, versions, name, versions.base, pinned, stand_in=False)


def pull(client: "DockerClient", image: str) -> None:
    """Pull an image by digest. Raises LabError when the registry does not have it."""
    import docker.errors

    say(f"pulling {image}")
    name, _, digest = image.partition("@")
    # A colon before the last slash belongs to the registry's port.
    folder, slash, last = name.rpartition("/")
    try:
        client.images.pull(f"{folder}{slash}{last.partition(':')[0]}", tag=digest)
    except docker.errors.NotFound as error:
        raise LabError(
            f"the base {image} is not in its registry\n"
            "do: put a newer digest into images/versions.yml (docker buildx imagetools inspect ubuntu:24.04), or build "
            "on another image with --base"
        ) from error
    except docker.errors.DockerException as error:
        hint = "check that the engine reaches the registry, or build on another image with --base"
        raise LabError(failed("pulling the base", image, str(error), hint)) from error


def existing(client: "DockerClient", plan: ImagePlan) -> bool:
    """Return whether an image with exactly this content and its SBOM exist."""
    import docker.errors

    try:
        image = client.images.get(plan.tag)
    except docker.errors.ImageNotFound:
        return False
    return image.labels.get(f"{LABEL}.fingerprint") == plan.fingerprint() and plan.sbom.exists()


@contextmanager
def files_for_build(client: "DockerClient", plan: ImagePlan, options: BuildOptions) -> Iterator[dict[str, str]]:
    """Serve wheels and a private CA to the build; yields the build arguments with their URLs."""
    served_folder = plan.folder.parent / f"{plan.name}.served"
    served_folder.mkdir(exist_ok=True)
    for old in served_folder.iterdir():
        old.unlink()
    bundle = private_certificates()
    if bundle:
        (served_folder / "ca.pem").write_bytes(bundle)
    wheels = ensure_wheels(plan.root, plan.name, plan.base.python, list(options.places))
    (served_folder / "wheels").symlink_to(wheels)
    port = PORTS[zlib.crc32(str(served_folder).encode()) % len(PORTS)]
    try:
        with served(client, served_folder, port) as url:
            ca = {"CA_URL": f"{url}/ca.pem"} if bundle and needs_ca(plan) else {}
            yield {"WHEELS_URL": f"{url}/wheels/", **ca}
    finally:
        (served_folder / "ca.pem").unlink(missing_ok=True)


def needs_ca(plan: ImagePlan) -> bool:
    """Return whether the build needs the CA; a substitute base with an http archive does not: apt checks signatures."""
    source = debian_archive(read_sources())
    return not plan.stand_in or source is None or source.uri.startswith("https:")


def security_line() -> str:
    """Return the source line of the substitute base's security updates."""
    source = security_archive(read_sources())
    return f"deb {source.uri} {source.suite} main"


def proxies() -> dict[str, str]:
    """Return the proxies of this host; the engine omits these names from the image's history."""
    return {name: value for name in PROXIES if (value := os.environ.get(name) or os.environ.get(name.upper()))}


def build_target(
    client: "DockerClient", folder: Path, target: str, tag: str, arguments: dict[str, str], labels: dict[str, str]
) -> None:
    """Build one stage with the engine's own builder. Raises LabError with the end of its output."""
    import docker.errors

    try:
        client.images.build(
            path=str(folder), target=target, tag=tag, buildargs=arguments, labels=labels, rm=True, forcerm=True
        )
    except docker.errors.BuildError as error:
        log = "".join(str(line.get("stream", "")) for line in error.build_log)
        hint = "check that the engine reaches its package archive; then run this again"
        raise LabError(failed(f"building {tag}", error.msg, f"{log}\n{error.msg}", hint)) from error
    except docker.errors.APIError as error:
        hint = "check the engine: docker info"
        raise LabError(
            failed(f"building {tag}", "the engine rejected the request", str(error.explanation or error), hint)
        ) from error


def drop_replaced(client: "DockerClient", tag: str, replaced: str | None) -> None:
    """Remove build stages that newer ones have replaced, and the previous image with this tag.

    Derived images inherit the label of their base image, so only the label of the build stage is used to filter.
    """
    import docker.errors

    client.images.prune(filters={"dangling": True, "label": f"{LABEL}=build"})
    if replaced is None or replaced == image_id(client, tag):
        return
    with suppress(docker.errors.APIError):  # another tag, a container or a derived image needs it
        if not client.images.get(replaced).tags:
            client.images.remove(replaced)


def read_file(client: "DockerClient", tag: str, path: str) -> bytes:
    """Return a file of an image. Raises LabError."""
    import docker.errors

    container = client.containers.create(tag, labels={LABEL: "copy"})
    try:
        chunks, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            member = tar.extractfile(tar.next() or "")
            return member.read() if member else b""
    except docker.errors.NotFound as error:
        raise LabError(f"{tag} has no {path}\ndo: build it again: gpucheck image build") from error
    finally:
        container.remove(force=True)


def size_of(client: "DockerClient", tag: str) -> int:
    """Return the unpacked size of the image in bytes, with its base.

    Not the image's own "Size": Docker 29 and newer, whose images are containerd's, add the compressed bytes to it.
    """
    return sum(int(layer["Size"]) for layer in client.images.get(tag).history())


def hold_budget(client: "DockerClient", plan: ImagePlan) -> None:
    """Raise LabError if the image exceeds its budget."""
    size, budget = size_of(client, plan.tag), plan.variant.size_budget_mb * MEGABYTE
    if size <= budget:
        return
    raise LabError(
        f"{plan.tag} has {size / MEGABYTE:.0f} MB; its budget in images/versions.yml is {budget / MEGABYTE:.0f} MB\n"
        f"do: see what takes the space (docker run --rm --user 0 {plan.tag} du -xm --max-depth=8 / | sort -n | tail), "
        "remove what the framework does not need, or raise size_budget_mb with a reason in the commit"
    )
