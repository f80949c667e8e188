"""Read the input of `gpucheck image`: the manifest, the libraries, the driver, the container of this process."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from gpucheck.checks.software import driver
from gpucheck.checks.software._wheels import NEEDS, Wheel, more, read_wheels
from gpucheck.images.selfreport import SelfReport
from gpucheck.model.facts import Facts, Source
from gpucheck.processes.capture import HostResources, capture
from gpucheck.processes.signals import signal_name

SECONDS = 20.0
MANIFEST = "share/gpucheck/image.json"


class ImageManifest(msgspec.Struct, frozen=True, kw_only=True):
    """image.json of the image that this process runs in."""

    variant: str
    framework: str
    version: str
    build: str
    python: str
    base: str
    stand_in_base: bool = False
    built_for: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    driver_floor: str | None = None
    code: tuple[str, ...] = ()


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """All values that were read. manifest: image.json; None outside a gpucheck image, a string if it is unreadable.

    full: the versions that the imported framework reports, None if it was not imported.
    """

    manifest: ImageManifest | str | None
    wheels: tuple[Wheel, ...]
    own: SelfReport
    facts: Facts
    full: dict[str, Any] | None = None

    @property
    def simulated(self) -> bool:
        return self.facts.simulation is not None


def read(source: Source, *, quick: bool, full: bool, prefix: Path = Path(sys.prefix)) -> Values:
    """Read all values once. quick omits the libraries; full imports the framework, which takes seconds."""
    facts = source.read(*NEEDS, *driver.NEEDS, "limits", "environment", "simulation")
    facts = source.read(*more(facts))
    manifest, wheels, own = read_manifest(prefix / MANIFEST), read_wheels(facts)[0], query_libraries(quick=quick)
    reported = query_framework(manifest.framework) if full and isinstance(manifest, ImageManifest) else None
    return Values(manifest=manifest, wheels=wheels, own=own, facts=facts, full=reported)


def read_manifest(path: Path) -> ImageManifest | str | None:
    """Return the image's manifest; None outside a gpucheck image."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ImageManifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        return f"{path}: {error}"


def query_libraries(*, quick: bool, seconds: float = SECONDS) -> SelfReport:
    """Return the self-report of a child process with a deadline. quick: only the device file and libcuda."""
    options = ["--quick"] if quick else []
    try:
        answer = _child([sys.executable, "-m", "gpucheck.images.selfreport", *options], seconds)
    except HostResources as reason:
        return SelfReport(error=str(reason))
    if isinstance(answer, str):
        return SelfReport(error=answer)
    try:
        return msgspec.json.decode(answer, type=SelfReport)
    except msgspec.DecodeError as error:
        return SelfReport(error=f"unreadable output: {error}")


# Prints the versions of each framework after its import, in the format of the libraries' self-report.
FULL = {
    "torch": """
import json, torch
def words(code): return f"{code // 10000}.{code % 10000 // 100}.{code % 100}" if code else None
nccl = torch.cuda.nccl.version() if torch.version.cuda else None
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda,
    "cudnn": words(torch.backends.cudnn.version()),
    "nccl": ".".join(map(str, nccl)) if nccl else None, "gpus": torch.cuda.device_count()}))
""",
    "tensorflow": """
import json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
info = tf.sysconfig.get_build_info()
print(json.dumps({"version": tf.__version__, "cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version"),
    "nccl": None, "gpus": len(tf.config.list_physical_devices("GPU"))}))
""",
}
FULL_SECONDS = 120.0


def query_framework(framework: str, seconds: float = FULL_SECONDS) -> dict[str, Any]:
    """Return the versions that the framework reports; ``error`` if it fails, ``unknown`` if it was not started."""
    try:
        answer = _child([sys.executable, "-c", FULL[framework]], seconds)
    except HostResources as reason:
        return {"unknown": str(reason)}
    if isinstance(answer, str):
        return {"error": answer}
    try:
        return msgspec.json.decode(answer.strip().splitlines()[-1], type=dict[str, Any])
    except (msgspec.DecodeError, IndexError) as error:
        return {"error": f"unreadable output: {error}"}


def _child(command: list[str], seconds: float) -> bytes | str:
    """Return a child's stdout, or why there is none. Raises HostResources if the host lacks resources to run it."""
    done = capture(command, seconds)
    if done.status is None:
        return f"no response in {seconds:.0f} s"
    if done.status:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        how = signal_name(-done.status) if done.status < 0 else f"exit status {done.status}"
        return f"{how} {last}".strip()
    return done.stdout
