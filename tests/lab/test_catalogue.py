"""The mirror's packages are consistent, and carry what the stack tables ask for."""

import re

import msgspec
import pytest
from packaging.version import Version

from gpucheck.lab import catalogue
from gpucheck.lab.catalogue import Package
from gpucheck.lab.model import BARE_METAL_HOSTS, HOSTS
from gpucheck.simulator import load
from gpucheck.simulator.machine.profile import gpu_model
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.rdma import LIBRARIES
from gpucheck.stack.settings import Tuning
from gpucheck.stack.spec import StackSpec

PACKAGES = catalogue.packages()
RELATION = re.compile(r"(?P<name>[a-z0-9][a-z0-9+.-]*)(?: \(?(?P<operator>[<>=]+) (?P<version>[^ )]+)\)?)?")
# What one host can install from: NVIDIA's repository, the container toolkit's, and the operating system's.
SIGHT = {"deb": ("cuda-ubuntu2204", "toolkit-deb", "os-ubuntu2204"), "rpm": ("cuda-rhel9", "toolkit-rpm", "os-rhel9")}
OS = {"apt-host": ("ubuntu", "22.04"), "dnf-host": ("rocky", "9.5")}


def in_sight(kind: str) -> list[Package]:
    return [p for p in PACKAGES if p.repository in SIGHT[kind]]


def offers(package: Package) -> set[tuple[str, str | None]]:
    """(name, version or None) of a package and of everything that it provides."""
    found: set[tuple[str, str | None]] = {(package.name, package.full_version)}
    for text in package.provides:
        match = RELATION.fullmatch(text)
        assert match
        found.add((match["name"], match["version"]))
    return found


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_every_dependency_can_be_satisfied(kind):
    """An exact version must be there in exactly that version, epoch and revision included."""
    everything = set().union(*(offers(p) for p in in_sight(kind)))
    names = {name for name, _ in everything}

    missing = []
    for package in in_sight(kind):
        for text in package.depends:
            match = RELATION.fullmatch(text)
            assert match, f"{package.name}: {text!r} is no relation"
            wanted = (match["name"], match["version"])
            if match["name"] not in names or (match["operator"] == "=" and wanted not in everything):
                missing.append(f"{package.name} {package.full_version}: {text}")
    assert not missing


@pytest.mark.parametrize(
    ("repository", "name", "chosen", "trap"),
    [
        ("cuda-ubuntu2204", "nvidia-persistenced", "580.178.04-1ubuntu1", "610.57.04-1ubuntu1"),
        ("cuda-ubuntu2204", "libnccl2", "2.29.3-1+cuda12.9", "2.32.3-1+cuda13.4"),
        ("cuda-rhel9", "nvidia-driver-cuda", "3:580.178.04-1.el9", "3:610.57.04-1.el9"),
        ("toolkit-deb", "nvidia-container-toolkit", "1.18.1-1", "1.19.0-1"),
        ("toolkit-rpm", "libnvidia-container1", "1.18.1-1", "1.19.0-1"),
    ],
)
def test_the_mirror_tempts_with_something_newer(repository, name, chosen, trap):
    """Whoever installs without a pin gets the trap, as from the real repositories."""
    versions = {p.full_version: Version(p.version) for p in PACKAGES if (p.repository, p.name) == (repository, name)}

    assert versions[trap] > versions[chosen]
    assert versions[trap] == max(versions.values())


def plan_of(host, **spec):
    profile = load(host.profile)
    os_id, version = OS[host.image]
    gpus = [d for d in profile.devices if d.gpu]
    ids = [gpu_model(d.gpu) for d in gpus]
    facts = {
        "schema": "gpucheck.facts/1",
        "host": host.name,
        "os": {"id": os_id, "version": version},
        "arch": "x86_64",
        "kernel": host.kernel,
        "simulated": True,
        "stand_ins": ["stub NVIDIA packages"],
        "gpus": [
            {"bus_id": d.bus_id, "device_id": m.device_id, "subsystem_id": f"10de:{m.subsystem_id}"}
            for d, m in zip(gpus, ids, strict=True)
        ],
        "nvswitches": sum(d.part is not None and "nvswitch" in d.part for d in profile.devices),
    }
    made = plan(
        lock(
            StackSpec(driver="580", torch="2.13.0+cpu", tensorflow="none", **spec), [msgspec.convert(facts, HostFacts)]
        ),
        host=host.name,
    )
    assert isinstance(made, Plan), made
    return made


@pytest.mark.parametrize(("ending", "family"), [("ubuntu2204", "debian"), ("rhel9", "redhat")])
def test_the_libraries_of_network_cards_are_in_the_mirror(ending, family):
    """Of the hosts with RDMA cards."""
    assert {*LIBRARIES[family]} <= {p.name for p in PACKAGES if p.repository == f"os-{ending}"}


@pytest.mark.parametrize("spec", [{}, *({"dcgm": version} for version in ("auto", "4.5.2", "4.6.1"))], ids=str)
@pytest.mark.parametrize("host", [*HOSTS, *BARE_METAL_HOSTS], ids=lambda h: h.name)
def test_what_the_plan_of_a_lab_host_names_is_in_the_mirror(host, spec):
    """Every package of every component in exactly the planned version, the headers, the module stream, DCGM's unit."""
    made = plan_of(host, tuning=Tuning(acs="off"), **spec)
    kind = "deb" if made.package_manager == "apt" else "rpm"
    have = {(p.name, p.full_version) for p in in_sight(kind)}
    names = {name for name, _ in have}
    dcgm = made.components.get("dcgm", {"packages": [], "services": [], "refuse": names})
    of_dcgm = {p["name"] for p in dcgm["packages"]}
    started = {p.service for p in in_sight(kind) if p.name in of_dcgm and p.service}

    assert started == {row["name"] for row in dcgm["services"]}
    assert set(dcgm["refuse"]) & names
    wanted = {(p["name"], p["version"]) for c in made.components.values() for p in c["packages"]}
    assert wanted
    # Without a version: the newest that the mirror has.
    assert {name for name, version in wanted if version is None} <= names
    assert {row for row in wanted if row[1]} <= have
    assert {*made.prerequisites, *made.compilers} <= names
    headers = {f"{p.name}-{p.full_version}.x86_64" for p in in_sight("rpm")} | {p.name for p in in_sight("deb")}
    assert made.headers
    assert set(made.headers) <= headers
    if made.module_stream:
        assert made.module_stream["module"] == catalogue.modules().module
        assert made.module_stream["stream"] in catalogue.modules().streams
