"""Rules of cuDNN and NCCL: each is built for one CUDA major and needs a toolkit."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gpucheck.knowledge import code_runs, tables
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem, recorded_packages
from gpucheck.stack.rules.driver import r1_driver_floor
from gpucheck.stack.types import Clash, Fact, Reason, Reasons, StackSpec, Target
from gpucheck.stack.versions import major, minor, parse, request


def without_toolkit(key: str, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the two keys and why, if a library is stated and ``cuda`` is ``none``."""
    if request(spec.cuda).none and request(getattr(spec, key)).explicit:
        yield ("cuda", key), "cuda: none, and this needs a CUDA major. State a version of cuda, or set both to none."


def no_toolkit(key: str, spec: StackSpec) -> Clash | None:
    """Return the same as a clash; a library on auto is omitted with the toolkit."""
    if not request(getattr(spec, key)).explicit:
        return None
    one = Fact("cuda: none", "the specification")
    other = Fact("cudnn or nccl is requested, and each is built for one CUDA major", "the specification")
    because = "without a CUDA toolkit there is no CUDA major to choose cuDNN and NCCL for"
    return Clash(component="cuda", rule="R7", between=(one, other), because=because)


def no_release(
    component: str,
    title: str,
    rule: str,
    requested: str,
    cuda_major: int,
    known: tuple[str, ...],
    other: int | None = None,
) -> Clash:
    """Return the clash of a request without a release for this CUDA major.

    known: all versions in the tables. other: the CUDA major that it was built for.
    """
    parsed = request(requested)
    between = (
        Fact(f"{title} {requested} is requested", "the specification"),
        Fact(f"no such release for CUDA {cuda_major} is in the tables", "cudnn-matrix, nccl-mk"),
    )
    because, way = f"no {title} {requested} for CUDA {cuda_major} is known", f"cuda {other}, for which it is built"
    if other:
        return Clash(component=component, rule=rule, between=between, because=because, way=way)
    unknown = not any(parsed.matches(version) for version in known)
    return Clash(component=component, rule=rule, between=between, because=because, unknown=unknown)


@lru_cache(maxsize=4096)
def numeric(version: str) -> int:
    """Return a version of up to four numbers as one number that sorts like it."""
    numbers = (*parse(version).release, 0, 0, 0, 0)[:4]
    return int("".join(f"{number:05d}" for number in numbers))


# Both frameworks have wheels for it, and it is supported until late 2028.
ADDED_PYTHON = "3.12"


def r16_python(os: OperatingSystem, pythons: tuple[str, ...], glibc: str) -> str | None:
    """R16: the Python is the system's if there is a wheel for it, else an additional one; None: glibc is too old."""
    if parse(os.glibc) < parse(glibc):
        return None
    if os.python in pythons:
        return os.python
    if ADDED_PYTHON in pythons:
        return ADDED_PYTHON
    return max((p for p in pythons if not p.endswith("t")), key=parse)


def r16_environment(os: OperatingSystem) -> str | None:
    """R16: With auto, torch has a wheel for the Python of gpucheck's environment, which it is installed in.

    None: the system has no Python that gpucheck supports.
    """
    table = packages().python
    if os.family == "redhat" and int(os.version) in table.el_majors:
        return table.interpreter.removeprefix("python")
    return os.python if parse(os.python) >= parse(table.minimum) else None


def r16_unconfirmed(os: OperatingSystem) -> Reasons:
    """R16: unconfirmed values of a system that wheels depend on are reported."""
    values = {"python": f"its default Python is {os.python}", "glibc": f"its glibc is {os.glibc}"}
    texts = [text for field, text in values.items() if field in os.unconfirmed]
    if not texts:
        return ()
    text = f"{os.name}: that {' and that '.join(texts)} was not confirmed"
    return (Reason(component="os", because=text, rule="R16", source="env-dumps", confirmed=False),)


def glibc_clash(component: str, what: str, glibc: str, os: OperatingSystem) -> Clash:
    """Return the clash of a wheel that needs a newer glibc than the system has."""
    between = (
        Fact(f"the wheels of {what} need glibc {glibc}", "wheel-bytes"),
        Fact(f"{os.name} has glibc {os.glibc}", "env-dumps"),
    )
    return Clash(component=component, rule="R16", between=between, because=f"{what} does not install on {os.name}")


def not_known(component: str, wanted: str, source: str, target: Target, known: Iterable[str]) -> Clash:
    """Return the clash of a framework without a release. known: every version in the tables."""
    one = Fact(f"{component} {wanted} is requested", "the specification")
    other = Fact(f"the tables have no confirmed GPU build of it for {target.arch}", source)
    rule = "R20" if target.arch == "sbsa" else "R11"
    because = f"no {component} {wanted} with GPU support for {target.arch} is known"
    unknown = not any(request(wanted).matches(version) for version in known)
    return Clash(component=component, rule=rule, between=(one, other), because=because, unknown=unknown)


def r3_ptx_needs_full_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R3: a GPU for which a program has only PTX needs a driver as new as the toolkit that built it."""
    full = next((t.driver_full for t in reversed(tables.cuda().toolkits) if minor(t.version) == minor(cuda)), None)
    if full is not None and parse(driver) >= parse(full):
        return None
    between = (
        Fact(f"{what} has only PTX of CUDA {cuda} for this GPU, which the driver must translate", "wheel-bytes"),
        Fact(f"PTX translation needs driver {full or '(not known)'}, the driver is {driver}", "cuda-compat, cuda-rn"),
    )
    because = f"driver {driver} cannot translate the PTX in {what}"
    return Clash(component=component, rule="R3", between=between, because=because)


def r6_wheel_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R6: a wheel uses only the driver of the host, so R1 applies with the wheel's own CUDA major."""
    return r1_driver_floor(major(cuda), driver, component, what)


def r5_runs(capability: str, archs: tuple[int, ...]) -> bool:
    """R5: machine code for X.Y runs on X.Z with Z >= Y, and never on another X."""
    return code_runs(capability, archs)


def seen_version(folder: str, target: Target, names: Sequence[str], wanted: str, revision: str = "1") -> str | None:
    """Return the newest version that a request states and that is recorded for all packages.

    Returns the version as the specification names it, with the CUDA build after the revision
    (``2.30.4-1+cuda13.2`` -> ``2.30.4+cuda13.2``). Only stated versions are returned, never for a range or ``auto``.
    """
    requested = request(wanted)
    if not requested.prefix or len(requested.prefix) < 2:
        return None
    each = [set(recorded_packages(folder, target.arch, name)) for name in names]
    found = []
    for text in set.intersection(*each) if each else ():
        version, _, rest = text.partition("-")
        number, _, build = rest.partition("+")
        number = number.partition(".el")[0]
        if number == revision and requested.matches(version) and requested.build in ("", build):
            found.append(f"{version}+{build}" if build else version)
    return max(found, key=lambda text: numeric(text.partition("+")[0]), default=None)


def stated_exactly(wanted: str, numbers: int) -> str | None:
    """Return the version of a request that states all its numbers; None for the start of one, a range, auto or none."""
    requested = request(wanted)
    return requested.version if len(requested.prefix) == numbers else None


def seen_reason(component: str, version: str, carried: str = "", *, seen: bool = True) -> Reason:
    """Return the reason. carried: values copied from the nearest version in the tables. seen: a record shows it."""
    text = f"{version} as requested: a record shows it in the repository, it is missing from the tables"
    if not seen:
        text = f"{version} as requested: it is missing from the tables, and no record shows it in the repository"
    more = f"; {carried}" if carried else ""
    return Reason(component=component, because=text + more, rule="R18", source="cuda-repo", confirmed=False)
