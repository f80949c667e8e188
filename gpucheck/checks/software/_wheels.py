"""The framework wheels in gpucheck's environment: what they were built for, read without importing them.

Sources, best first: torch/version.py and tensorflow/python/platform/build_info.py in the wheel, its METADATA, and the
knowledge tables by version and build. What torch itself reports is used if it was imported in a child process.
"""

import re
import sysconfig
from collections.abc import Iterator

import msgspec

from gpucheck.knowledge import tables
from gpucheck.model import Host

# Frameworks, and the wheels that bring cuDNN and NCCL for each CUDA major.
FRAMEWORKS = ("torch", "tensorflow")
FAMILIES = ("cu11", "cu12", "cu13")
# PyPI has TensorFlow without its CUDA part as a package of another name.
CPU_NAMES = {"tensorflow": "tensorflow-cpu"}
LIBRARIES = tuple(f"nvidia-{name}-{family}" for name in ("cudnn", "nccl") for family in FAMILIES)
FILES = {"torch": "torch/version.py", "tensorflow": "tensorflow/python/platform/build_info.py"}
TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
# Only a simulated wheel has this in its file; a real one has to be imported.
TORCH_CODE = re.compile(r"^arch_list\b[^=\n]*=\s*\[([^\]]*)\]", re.MULTILINE)
# TensorFlow has written this file as a dict and as a list of pairs.
TENSORFLOW_CUDA = re.compile(r"['\"]cuda_version['\"]\s*[:,]\s*['\"]([\d.]+)['\"]")
TENSORFLOW_CODE = re.compile(r"['\"]cuda_compute_capabilities['\"]\s*[:,]\s*\[([^\]]*)\]")
PTX_NAME = re.compile(r"compute_(\d+)")
CODE_NAME = re.compile(r"(?:sm|compute)_(\d+)[af]?")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What torch reported of itself in a child process. error: why it reported nothing.

    arch_list: ``sm_60`` names. mapped: the CUDA libraries that the child had loaded, by path.
    """

    version: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    arch_list: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    folder: str = ""
    error: str | None = None


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """One installed framework. info, metadata: its files as text, None where they were not found."""

    name: str
    version: str
    info: str | None = None
    metadata: str | None = None


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What a wheel was built for. cuda None: a CPU build. archs None: not known; ptx: newest PTX inside (90 means 9.0).

    pins: library wheel -> version specifier. evidence: the source of each.
    """

    cuda: str | None
    archs: tuple[int, ...] | None
    ptx: int | None = None
    pins: dict[str, str] = msgspec.field(default_factory=dict)
    evidence: tuple[str, ...] = ()


def read_wheels(host: Host) -> tuple[tuple[Wheel, ...], dict[str, str]]:
    """The installed frameworks with their files, and the versions of the installed library wheels."""
    versions = host.python_packages([*FRAMEWORKS, *CPU_NAMES.values(), *LIBRARIES])
    folder = sysconfig.get_path("purelib")
    wheels = []
    for name in FRAMEWORKS:
        package = name if versions.get(name) is not None else CPU_NAMES.get(name, name)
        version = versions.get(package)
        if version is not None:
            info = host.read_text(f"{folder}/{FILES[name]}") or ("" if package != name else None)
            metadata = host.read_text(f"{folder}/{package.replace('-', '_')}-{version}.dist-info/METADATA")
            wheels.append(Wheel(name=name, version=version, info=info, metadata=metadata))
    installed = {name: version for name in LIBRARIES if (version := versions.get(name)) is not None}
    return tuple(wheels), installed


def built_for(wheel: Wheel, arch: str) -> Built | None:
    """Return the build of the wheel, None if neither its files nor the tables have it. arch: as uname prints it."""
    found = _torch(wheel, arch) if wheel.name == "torch" else _tensorflow(wheel)
    if found is None or found.cuda is None:
        return found
    pins = {**found.pins, **_pins(wheel.metadata)}
    return msgspec.structs.replace(found, pins=pins)


def _torch(wheel: Wheel, arch: str) -> Built | None:
    plain, _, build = wheel.version.partition("+")
    if build == "cpu" or (wheel.info is not None and not TORCH_CUDA.search(wheel.info)):
        return Built(cuda=None, archs=(), evidence=(f"torch {wheel.version}: a CPU build",))
    row = next((release for release in tables.torch().releases if release.version == plain), None)
    arm = arch in ("aarch64", "arm64", "sbsa")
    builds = row.builds if row else ()
    if row and not build and arm:
        build = row.aarch64.build
    known = next((b for b in builds if (b.build == build if build else b.origin == "pypi")), None)
    built = TORCH_CUDA.search(wheel.info or "")
    if known is None and built is None:
        return None
    evidence = [f"torch/version.py: cuda = {built[1]}"] if built else []
    archs, pins = None, {}
    if known is not None and row is not None:
        archs = row.aarch64.archs if arm else known.archs
        family = f"cu{known.cuda.split('.')[0]}"
        pins = {f"nvidia-{n}-{family}": f"=={v}" for n, v in (("cudnn", known.cudnn), ("nccl", known.nccl)) if v}
        evidence.append(f"tables: torch {plain}+{known.build} holds code for sm {archs}, {known.basis}")
    code = TORCH_CODE.search(wheel.info or "")
    if code is not None:
        archs = tuple(int(number) for number in CODE_NAME.findall(code[1]))
        evidence[1:] = [f"torch/version.py: arch_list = {' '.join(map(str, archs))}"]
    return Built(
        cuda=built[1] if built else known.cuda if known else None, archs=archs, pins=pins, evidence=(*evidence,)
    )


def _tensorflow(wheel: Wheel) -> Built | None:
    row = next((r for r in tables.tensorflow().releases if r.version == wheel.version), None)
    built, code = TENSORFLOW_CUDA.search(wheel.info or ""), TENSORFLOW_CODE.search(wheel.info or "")
    if built is None and wheel.info is not None:
        return Built(cuda=None, archs=(), evidence=("build_info.py names no CUDA: a CPU build",))
    names = code[1] if code else " ".join(row.archs or ()) if row else ""
    cuda = built[1] if built else row.cuda if row else None
    if cuda is None:
        return None
    archs = tuple(int(number) for number in CODE_NAME.findall(names)) or None
    family = f"cu{cuda.split('.')[0]}"
    wanted = (("cudnn", row.cudnn), ("nccl", row.nccl)) if row else ()
    who = "build_info.py" if built else "tables"
    return Built(
        cuda=cuda,
        archs=archs,
        ptx=max((int(number) for number in PTX_NAME.findall(names)), default=None),
        pins={f"nvidia-{name}-{family}": spec for name, spec in wanted if spec},
        evidence=(f"{who}: tensorflow {wheel.version} is built with CUDA {cuda}, code {names or 'not known'}",),
    )


def _pins(metadata: str | None) -> dict[str, str]:
    """The cuDNN and NCCL wheels that METADATA asks for; extras count, as ``tensorflow[and-cuda]`` needs them."""
    return dict(_requirements(metadata or ""))


def _requirements(metadata: str) -> Iterator[tuple[str, str]]:
    from packaging.requirements import InvalidRequirement, Requirement

    for line in metadata.splitlines():
        if not line:
            return  # the description begins
        key, _, text = line.partition(": ")
        if key != "Requires-Dist":
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # one odd line hides no other
        if requirement.name in LIBRARIES and str(requirement.specifier):
            yield requirement.name, str(requirement.specifier)
