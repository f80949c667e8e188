"""The build context of an image: a directory for any builder, and its build arguments."""

import json
import os
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from gpucheck.images.fill import lock_path
from gpucheck.images.versions import Base, Variant, Versions, image_manifest, labels, tag, version_text
from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import LabError
from gpucheck.lab.wheelhouse import OWN_WHEEL, own_wheel

# Libraries that NCCL loads at run time for InfiniBand and RoCE; without them, it uses TCP and reports no error.
RDMA = ("libibverbs1", "ibverbs-providers", "librdmacm1")
# torch.compile generates C++ for the CPU part of a graph; the list of a row names the other packages.
CPP = "g++"


class ImagePlan:
    """One image to build. base_image: the reference in this engine.

    security: an apt source line with security updates, for a base that lacks it.
    """

    def __init__(
        self,
        root: Path,
        versions: Versions,
        name: str,
        base: Base,
        base_image: str,
        *,
        stand_in: bool,
        security: str = "",
    ) -> None:
        self.root, self.name, self.security = root, name, security
        self.variant: Variant = versions.variant(name)
        self.base, self.base_image, self.stand_in = base, base_image, stand_in
        self.tag = tag(self.variant, base, stand_in)

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
            "do: gpucheck image versions --update --index URL (or --find-links DIR) with access to it, then build again"
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
