"""The framework wheels in gpucheck's environment: what they were built for, read without importing them.

Sources, best first: torch/version.py and tensorflow/python/platform/build_info.py in the wheel, its METADATA, and the
knowledge tables by version and build. What torch itself reports is used if it was imported in a child process.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gpucheck.checks._nvml import on_the_bus
from gpucheck.knowledge import code_runs, gpu_by_pci_id, tables
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NvmlReading
from gpucheck.model.facts import Facts

# Frameworks, and the wheels that bring cuDNN and NCCL for each CUDA major.
FRAMEWORKS = ("torch", "tensorflow")
FAMILIES = ("cu11", "cu12", "cu13")
# PyPI has TensorFlow without its CUDA part as a package of another name.
CPU_NAMES = {"tensorflow": "tensorflow-cpu"}
LIBRARIES = tuple(f"nvidia-{name}-{family}" for name in ("cudnn", "nccl") for family in FAMILIES)
FILES = {
    "torch": "{purelib}/torch/version.py",
    "tensorflow": "{purelib}/tensorflow/python/platform/build_info.py",
}
NEEDS = (
    *("system", "driver", "pci"),
    *(f"python:{name}" for name in (*FRAMEWORKS, *CPU_NAMES.values(), *LIBRARIES)),
)
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


def more(facts: Facts) -> Iterator[str]:
    """Further needs: the files of the frameworks, and NVML if a GPU that these have to serve is not in the tables."""
    for name, package, version in _frameworks(facts):
        yield from (f"text:{FILES[name]}", f"text:{_metadata(package, version)}")
    if any(_frameworks(facts)) and None in _in_tables(facts).values():
        yield "nvml"


def _frameworks(facts: Facts) -> Iterator[tuple[str, str, str]]:
    for name in FRAMEWORKS:
        package = name if facts.python_packages[name] is not None else CPU_NAMES.get(name, name)
        version = facts.python_packages[package]
        if version is not None:
            yield name, package, version


def _metadata(package: str, version: str) -> str:
    return f"{{purelib}}/{package.replace('-', '_')}-{version}.dist-info/METADATA"


def read_wheels(facts: Facts) -> tuple[tuple[Wheel, ...], dict[str, str]]:
    """The installed frameworks with their files, and the versions of the installed library wheels."""
    wheels = tuple(
        Wheel(
            name=name,
            version=version,
            info=facts.texts[FILES[name]] or ("" if package != name else None),
            metadata=facts.texts[_metadata(package, version)],
        )
        for name, package, version in _frameworks(facts)
    )
    return wheels, {name: found for name in LIBRARIES if (found := facts.python_packages[name]) is not None}


def _in_tables(facts: Facts) -> dict[str, str | None]:
    gpus = (device for device in on_the_bus(facts) if not device.is_passed_through)
    models = {device.bus_id: gpu_by_pci_id(device.device_id) for device in gpus}
    return {bus_id: model.compute_capability if model else None for bus_id, model in models.items()}


def capabilities_of(facts: Facts) -> dict[str, str | None]:
    """Return compute capability by bus id of every GPU that a framework has to serve, None where it is not known.

    By the PCI ids, so that no driver is needed; NVML is queried only for a GPU that the tables do not contain.
    """
    found = _in_tables(facts) if any(_frameworks(facts)) else {}
    if None in found.values():
        nvml = facts.nvml
        queried = {g.pci_bus_id: g.compute_capability for g in nvml.gpus} if isinstance(nvml, NvmlReading) else {}
        found = {bus_id: capability or queried.get(bus_id) for bus_id, capability in found.items()}
    return found


def built_for(wheel: Wheel, arch: str) -> Built | None:
    """Return the build of the wheel, None if neither its files nor the tables have it. arch: as uname prints it."""
    found = _torch(wheel, arch) if wheel.name == "torch" else _tensorflow(wheel)
    if found is None or found.cuda is None:
        return found
    return msgspec.structs.replace(found, pins={**found.pins, **dict(_requirements(wheel.metadata or ""))})


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


def _requirements(metadata: str) -> Iterator[tuple[str, str]]:
    """The cuDNN and NCCL wheels that METADATA asks for; extras count, as ``tensorflow[and-cuda]`` needs them."""
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


HOST = Subject(check="stack")
VERSION = re.compile(r"\d+(\.\d+)+")


def evaluate_wheels(facts: Facts, imported: Imported | None = None) -> Iterator[Finding]:
    """All findings about the wheels. imported: what torch reported, if it was imported."""
    wheels, libraries = read_wheels(facts)
    capabilities = capabilities_of(facts)
    for wheel in wheels:
        built = built_for(wheel, facts.system.arch)
        if wheel.name == "torch" and imported is not None:
            yield from _imported(imported)
            built = _corrected(built, imported)
        if built is None:
            seen = f"{wheel.name} {wheel.version}"
            yield HOST.unknown("software.build-unknown", seen, "a build that the tables know", framework=wheel.name)
        elif wheel.name == "tensorflow" and built.pins and not built.pins.keys() & libraries.keys():
            # It is built for CUDA, and pip leaves the libraries out unless the extra is asked for.
            seen, requirement = f"{wheel.name} {wheel.version}", f"{wheel.name}[and-cuda]=={wheel.version}"
            code = "software.tensorflow-without-cuda"
            wanted = ", ".join(f"{name} {spec}" for name, spec in built.pins.items())
            seen, named = f"{seen} without its CUDA packages", {"framework": wheel.name, "requirement": requirement}
            yield HOST.with_evidence(*built.evidence).warns(code, seen, wanted, **named)
        elif built.cuda is not None:
            yield from driver_floor(wheel, built, facts.driver.loaded_version)
            yield from code_for_gpus(wheel, built, capabilities)
            yield from _libraries(wheel, built, libraries, capabilities)
    # R19: the cu12 and cu13 wheels of one library write the same files.
    for library in ("cudnn", "nccl"):
        both = [f"nvidia-{library}-{family}" for family in FAMILIES if f"nvidia-{library}-{family}" in libraries]
        if len(both) > 1:
            seen = " and ".join(f"{name} {libraries[name]}" for name in both)
            yield HOST.fails("software.wheels-overwritten", seen, f"one wheel of {library}")


def driver_floor(wheel: Wheel, built: Built, driver: str | None) -> Iterator[Finding]:
    """R1: a wheel takes nothing but the driver from the host."""
    floor = tables.drivers().minor_compat_floor.get(str(built.cuda).partition(".")[0])
    if floor is None or driver is None or not VERSION.fullmatch(driver):
        return  # without a driver the driver check fails; there is no floor to compare with
    seen = f"{wheel.name} {wheel.version} (CUDA {built.cuda}) on driver {driver}"
    wanted = f"driver {floor} or newer"
    subject = HOST.with_evidence(*built.evidence)
    if _at_least(driver, floor):
        yield subject.passes(seen, wanted)
    else:
        yield subject.fails("software.driver-below-floor", seen, wanted, framework=wheel.name, floor=floor)


def code_for_gpus(wheel: Wheel, built: Built, capabilities: dict[str, str | None]) -> Iterator[Finding]:
    host, build = HOST.with_evidence(*built.evidence), f"{wheel.name} {wheel.version}"
    wanted = "machine code for every GPU"
    if built.archs is None:
        code = "software.code-list-unknown"
        yield host.unknown(code, build, wanted, framework=wheel.name, version=wheel.version)
        return
    one_of = f"one of sm {' '.join(str(arch) for arch in built.archs)}"
    covered = []
    for bus_id, capability in capabilities.items():
        if capability is None:
            gpu = Subject(check=HOST.check, name=f"gpu:{bus_id}")
            yield gpu.unknown("software.capability-unknown", "compute capability unknown", one_of)
        elif code_runs(capability, built.archs) or _translated(capability, built.ptx):
            covered.append(bus_id)
        else:
            gpu, seen = msgspec.structs.replace(host, name=f"gpu:{bus_id}"), f"compute capability {capability}"
            code = "software.no-code-for-gpu"
            yield gpu.fails(code, seen, one_of, framework=wheel.name, version=wheel.version)
    if covered:
        yield host.passes(f"{build} has code for {len(covered)} GPUs", wanted)


def _translated(capability: str, ptx: int | None) -> bool:
    """Whether the driver translates PTX for this GPU. Official wheels were seen to fail at it on Blackwell."""
    if ptx is None:
        return False
    return not _at_least(f"{ptx // 10}.{ptx % 10}", capability) and not _at_least(capability, "10.0")


def _libraries(
    wheel: Wheel, built: Built, libraries: dict[str, str], capabilities: dict[str, str | None]
) -> Iterator[Finding]:
    for name, spec in built.pins.items():
        have = libraries.get(name)
        wanted = f"{name} {spec}"
        old = _too_old_for(name, have, capabilities) if have else None
        if old is not None:
            yield old
        elif have is None or not _fits(have, spec):
            seen = f"{wheel.name} {wheel.version} with {name} {have or 'not installed'}"
            code = "software.library-version-differs" if have else "software.library-not-installed"
            subject = HOST.with_evidence(*built.evidence)
            yield subject.warns(code, seen, wanted, framework=wheel.name, requirement=f"{name}{spec}")
        else:
            yield HOST.passes(f"{wheel.name} {wheel.version} with {name} {have}", wanted)


def _too_old_for(name: str, have: str, capabilities: dict[str, str | None]) -> Finding | None:
    """R7: pip fills a range with the newest cuDNN, and newer ones left old GPUs behind."""
    if "cudnn" not in name:
        return None
    release = next((r for r in reversed(tables.cudnn().releases) if _at_least(have, r.version)), None)
    if release is None or release.min_cc is None:
        return None
    for bus_id, capability in capabilities.items():
        if capability is not None and not _at_least(capability, release.min_cc):
            line = f"tables: cuDNN {release.version} from compute capability {release.min_cc} ({release.basis})"
            gpu = Subject(check=HOST.check, name=f"gpu:{bus_id}", evidence=(line,))
            values: dict[str, Any] = {
                "library": name,
                "version": have,
                "minimum": release.min_cc,
                "capability": capability,
            }
            return gpu.fails("software.cudnn-too-new", f"{name} {have}", "a cuDNN with code for this GPU", **values)
    return None


def _corrected(built: Built | None, imported: Imported) -> Built | None:
    """What torch reports outranks files and tables."""
    if imported.error is not None or imported.cuda is None:
        return built
    archs = tuple(int(digits) for name in imported.arch_list if (digits := name.partition("_")[2].rstrip("af")))
    evidence = (f"torch.version.cuda: {imported.cuda}", f"torch.cuda.get_arch_list(): {' '.join(imported.arch_list)}")
    known = built or Built(cuda=None, archs=None)
    return Built(cuda=imported.cuda, archs=archs or known.archs, pins=known.pins, evidence=evidence)


def _imported(imported: Imported) -> Iterator[Finding]:
    if imported.error is not None:
        yield HOST.unknown("software.torch-not-imported", imported.error, "torch imports", problem=imported.error)
        return
    if imported.cuda is None:
        yield HOST.skips("software.torch-without-cuda", f"torch {imported.version}", "a CUDA build")
        return
    parts = (("CUDA", imported.cuda), ("cuDNN", imported.cudnn), ("NCCL", imported.nccl))
    libraries = ", ".join(f"{name} {version or 'not reported'}" for name, version in parts)
    seen = f"torch {imported.version}: {libraries}"
    outside = [path for path in imported.mapped if not PurePosixPath(path).is_relative_to(imported.folder)]
    if outside:
        seen = f"{seen}; {len(outside)} of its libraries come from elsewhere"
        wanted = f"libraries below {imported.folder}"
        yield HOST.with_evidence(*outside).warns("software.torch-libraries-overridden", seen, wanted)
    else:
        yield HOST.with_evidence(*imported.mapped).passes(seen, "its own libraries")


# packaging is imported where there is a framework: to load it takes longer than all other checks.
def _at_least(version: str, floor: str) -> bool:
    from packaging.version import Version

    return Version(version) >= Version(floor)


def _fits(version: str, requirement: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return version in SpecifierSet(requirement, prereleases=True)
