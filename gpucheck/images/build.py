"""Build an image: choose the base, write the context, build, extract the SBOM, check the size budget."""

import io
import json
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.images.versions import (
    CUSTOM,
    LABEL,
    Base,
    Variant,
    Versions,
    image_manifest,
    labels,
    lock_path,
    read_versions,
    require_platform,
    tag,
    version_text,
)
from gpucheck.lab.containers import engine_errors
from gpucheck.lab.images import (
    build_image,
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
from gpucheck.lab.wheelhouse import OWN_WHEEL, own_wheel, pip

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image


# Libraries that NCCL loads at run time for InfiniBand and RoCE; without them, it uses TCP and reports no error.
RDMA = ("libibverbs1", "ibverbs-providers", "librdmacm1")
NO_WHEEL = (
    "the index lacks a wheel of the lock, or cannot be reached: name another with --index URL or --find-links DIR (pip "
    "config list shows the settings of pip)"
)
# torch.compile generates C++ for the CPU part of a graph; the list of a row names the other packages.
CPP = "g++"


@dataclass(frozen=True)
class ImagePlan:
    """One image to build. base_image: the reference in this engine.

    security: an apt source line with security updates, for a base that lacks it.
    """

    root: Path
    variant: Variant
    name: str
    base: Base
    base_image: str
    stand_in: bool = False
    security: str = ""

    @property
    def tag(self) -> str:
        return tag(self.variant, self.base, self.stand_in)

    @property
    def folder(self) -> Path:
        return self.root / "build/images" / self.name

    @property
    def sbom(self) -> Path:
        return self.root / "build/images" / f"{self.name}.cdx.json"

    def arguments(self) -> dict[str, str]:
        variant, cuda = self.variant, self.variant.filled.cuda is not None
        packages = (*(RDMA if cuda else ()), *variant.compiler, *((CPP,) if variant.compiler else ()))
        found = {
            "BASE": self.base_image,
            "PACKAGES": " ".join(dict.fromkeys(packages)),
            "GPUS": "all" if cuda else "void",
            "SECURITY": self.security,
            "FRAMEWORK_VERSION": variant.filled.version if variant.framework == "torch" else "",
        }
        return {key: value for key, value in found.items() if value}

    def fingerprint(self) -> str:
        """Return the hash of context and base, which identifies the image."""
        return fingerprint([self.folder, json.dumps(self.arguments(), sort_keys=True), self.tag])

    def labels(self, updates: str = "") -> dict[str, str]:
        """Return every label of the image. updates: when the packages of the base were last updated.

        ``created`` is the time of the build, or SOURCE_DATE_EPOCH for reproducible labels.
        """
        wheel = next(self.folder.glob(OWN_WHEEL))
        build = {
            "gpucheck": wheel.name.split("-")[1],
            "fingerprint": self.fingerprint(),
            "updates": updates,
            "created": build_time().isoformat(),
            **commit(self.root),
        }
        return labels(self.name, self.variant, self.base, stand_in=self.stand_in, build=build)


def build_time() -> datetime:
    """Return now, or SOURCE_DATE_EPOCH (seconds). Raises LabError if it is not a number."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        return datetime.now(timezone.utc).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(given), timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise LabError(
            f"SOURCE_DATE_EPOCH={given!r} is not a number of seconds\ndo: unset SOURCE_DATE_EPOCH, or set it to the "
            "commit's date: git log -1 --format=%ct"
        ) from error


def commit(root: Path) -> dict[str, str]:
    """Return revision and origin of the checkout, if git knows them; ``-dirty`` if files differ from the commit."""
    queries = {
        "revision": ("log", "-1", "--format=%H"),
        "changed": ("status", "--porcelain", "--untracked-files=normal"),
        "source": ("config", "--get", "remote.origin.url"),
    }
    found = {}
    for key, words in queries.items():
        try:
            done = subprocess.run(["git", "-C", str(root), *words], check=False, capture_output=True, text=True)
        except OSError:
            return {}
        value = done.stdout.strip()
        # An origin that is a path or contains a login is private.
        if done.returncode == 0 and value and (key != "source" or (value.startswith("https://") and "@" not in value)):
            found[key] = value
    if found.pop("changed", "") and "revision" in found:
        found["revision"] += "-dirty"
    return found


def assemble(plan: ImagePlan) -> Path:
    """Write the context: Dockerfile, scripts, lock, manifest and gpucheck's wheel. Raises LabError without a lock."""
    variant, root = plan.variant, plan.root
    lock = lock_path(root, plan.name)
    if not lock.exists():
        index = variant.filled.index
        where = "on PyPI" if index == "pypi" else f"in the sub-index {index} of the framework's wheel index"
        raise LabError(
            f"{plan.name} has no lock ({lock.relative_to(root)}): the wheels of {variant.framework} "
            f"{version_text(variant)} are {where}, which did not respond when the locks were made\n"
            "do: python -m release.image_versions --update --index URL (or --find-links DIR) with access to it, then "
            "build again"
        )
    cache = root / ".cache/images"
    cache.mkdir(parents=True, exist_ok=True)
    wheel = own_wheel(root, cache)
    shutil.rmtree(plan.folder, ignore_errors=True)
    build = plan.folder / "build"
    build.mkdir(parents=True)
    # Scripts shared with the lab: trust a private CA for one step, and use apt without leftover files.
    for script in (root / "images/lab/build/with-ca", root / "images/lab/build/apt-install"):
        shutil.copy(script, build)
    for script in (root / "images/common").iterdir():
        shutil.copy(script, build)
    shutil.copy(root / "images" / variant.framework / "Dockerfile", plan.folder)
    shutil.copy(lock, plan.folder / "requirements.txt")
    shutil.copy(lock_path(root, "tools"), plan.folder / "tools.txt")
    shutil.copy(wheel, plan.folder)
    text = json.dumps(image_manifest(plan.name, variant, plan.base, stand_in=plan.stand_in), indent=1)
    (plan.folder / "image.json").write_text(text + "\n", encoding="utf-8")
    for path in (plan.folder, *plan.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent == build else 0o644)
    return plan.folder


def command_line(plan: ImagePlan, arguments: dict[str, str]) -> list[str]:
    """Return the plain `docker build` (or podman, or buildx) command that builds the same image from the context."""
    words = ["docker", "build", "--tag", plan.tag]
    for key, value in arguments.items():
        words += ["--build-arg", f"{key}={value}"]
    for key, value in sorted(plan.labels().items()):
        words += ["--label", f"{key}={value}"]
    return [*words, str(plan.folder)]


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
        # The Python that runs pip evaluates markers in the lock, so it downloads for its own platform only.
        words += ["--python-version", python, *places, "--requirement", lock]
        run(words, what=f"downloading the wheels of {name}", hint=NO_WHEEL)
    stamp_file.write_text(stamp)
    return folder


def index_options(indexes: tuple[str, ...], find_links: tuple[str, ...]) -> list[str]:
    """Return options of both pip and uv. Raises LabError for a missing directory."""
    for place in find_links:
        if "://" not in place and not Path(place).is_dir():
            raise LabError(f"--find-links {place}: no such directory\ndo: name a directory of wheels, or its URL")
    options = [word for index in indexes for word in ("--extra-index-url", index)]
    return options + [word for place in find_links for word in ("--find-links", place)]


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
    versions = read_versions(root)
    require_platform(client, versions, name)
    plan = plan_of(client, root, versions, name, options.base)
    folder, old = assemble(plan), present(client, plan.tag)
    same = old is not None and old.labels.get(f"{LABEL}.fingerprint") == plan.fingerprint()
    if same and plan.sbom.exists() and not options.fresh:
        say(f"{plan.tag}: up to date")
        return Built(plan.tag, size_of(client, plan.tag), built=False, sbom=plan.sbom)
    # The time of the last fresh build: with another value, the builder's cache would give older packages.
    before = old.labels.get(f"{LABEL}.updates", "") if old else ""
    updates = f"{build_time():%Y%m%d%H%M%S}" if options.fresh else before
    replaced = str(old.id) if old else None
    with files_for_build(client, plan, options) as arguments:
        say(f"building {plan.tag} on {plan.base_image}")
        wanted = {**plan.arguments(), **arguments, **({"UPDATES": updates} if updates else {})}
        # First the stage, with its own tag: it is reused, and a change of gpucheck adds one small layer.
        for target, tag in (("build", f"{STAGE}:{name}"), ("runtime", plan.tag)):
            labels_ = plan.labels(updates) if target == "runtime" else {}
            with engine_errors(f"building {tag}"):
                build_image(client, tag, wanted, path=str(folder), target=target, labels=labels_)
    drop_replaced(client, plan.tag, replaced)
    plan.sbom.write_bytes(read_file(client, plan.tag, SBOM))
    hold_budget(client, plan)
    return Built(plan.tag, size_of(client, plan.tag), built=True, sbom=plan.sbom)


def present(client: "DockerClient", tag: str) -> "Image | None":
    """The image with this tag."""
    import docker.errors

    try:
        return client.images.get(tag)
    except docker.errors.ImageNotFound:
        return None


def plan_of(client: "DockerClient", root: Path, versions: Versions, name: str, given: str | None) -> ImagePlan:
    """Return the plan with its base: the given one, the pinned one, or the substitute if no registry responds."""
    row = versions.variant(name)
    if given is not None:
        same = versions.base.digest is not None and given.endswith(f"@{versions.base.digest}")
        name_ = versions.base.name if same else CUSTOM
        own = Base(name=name_, python=versions.base.python, image=given)
        return ImagePlan(root, row, name, own, given)
    pinned = versions.base.image or ""
    if present(client, pinned) is None:
        if not registry_answers():
            say("no container registry responds: the base is built from Debian's archive, as tag and label state")
            base = ensure_base(client)
            return ImagePlan(root, row, name, versions.stand_in, base, stand_in=True, security=security_line())
        pull(client, pinned)
    return ImagePlan(root, row, name, versions.base, pinned)


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
    source = security_archive(read_sources())
    return f"deb {source.uri} {source.suite} main"


def drop_replaced(client: "DockerClient", tag: str, replaced: str | None) -> None:
    """Remove build stages that newer ones have replaced, and the previous image with this tag.

    Derived images inherit the label of their base image, so only the label of the build stage is used to filter.
    """
    import docker.errors

    client.images.prune(filters={"dangling": True, "label": f"{LABEL}=build"})
    now = present(client, tag)
    if replaced is None or (now and replaced == now.id):
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
