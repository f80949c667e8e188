"""Every name, version, folder and key that a plan can name, against what public documents show of the real folders."""

import re
from collections.abc import Iterator
from functools import lru_cache

import pytest

from gpucheck.knowledge import tables
from gpucheck.knowledge.packages import options, packages
from gpucheck.stack import Refusal, StackSpec
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from tests.shared import sampled
from tests.stack import recordings
from tests.stack.hosts import GPU_SETS, SYSTEMS, host

PLANNED = [name for name in SYSTEMS if name not in ("centos-7", "centos-stream-8")]
# A machine of each kind of fabric and of each first branch, for every release of every part.
VERSIONS = {
    "cuda": [row.version for row in tables.cuda().toolkits],
    "cudnn": [row.version for row in tables.cudnn().releases],
    "nccl": [f"{row.version}+cuda{row.cuda}" for row in packages().nccl.builds],
    "container_toolkit": packages().container_toolkit.versions,
    "dcgm": [row.version for row in options().dcgm.versions],
}
FEW = ("v100-sxm2-x8", "t4-x1", "h100-sxm5-x8", "b200-x8", "gb200-x4")


def specs(gpus: str) -> Iterator[dict[str, str]]:
    """What a site may state: every driver that the tables know, and with few GPU sets every release of other parts."""
    yield {"dcgm": "auto"}
    branches = {branch.branch for branch in tables.drivers().branches if branch.last}
    for driver in sorted(branches | set(packages().revisions.ubuntu)):
        if int(driver.partition(".")[0]) >= 550:
            yield {"driver": driver}
    if gpus in FEW:
        for part, versions in VERSIONS.items():
            yield from ({part: version} for version in versions)


def plans(system: str) -> Iterator[Plan]:
    """Every plan for this system that is not refused."""
    driver = {"driver": "580", "cuda": "12.9"} if system == "ubuntu-20.04" else {}
    for gpus in GPU_SETS:
        for stated in specs(gpus):
            spec = StackSpec(**{**driver, **stated})  # type: ignore[arg-type]
            found = plan(lock(spec, [host(system, gpus)]), host="node01")
            if not isinstance(found, Refusal):
                yield found


Spec = tuple[str, str, str, str | None]


@lru_cache(maxsize=64)
def named(system: str) -> dict[Spec, bool]:
    """(folder, architecture, name, version) of every package, and whether each plan with it says unconfirmed."""
    folder = next(
        row.repository for row in tables.operating_systems().systems if row.id == system.replace("almalinux", "alma")
    )
    assert folder
    found: dict[Spec, bool] = {}
    for one in plans(system):
        arch = one.arch
        said = {row.spec for row in one.unconfirmed}
        for part, component in one.components.items():
            where = recordings.TOOLKIT if part == "container_toolkit" else folder
            for row in component["packages"]:
                if row["name"] in packages().fabric.subnet_manager.of_the_system:
                    continue
                spec = (where, arch, row["name"], row["version"])
                found[spec] = found.get(spec, True) and row["spec"] in said
    return found


# Of the package managers and archive layouts, one each.
FIRST = ["debian-13", "rhel-9", "ubuntu-22.04"]


def first(_, system):
    return system in FIRST


@pytest.mark.parametrize("system", sampled(PLANNED, first))
def test_plan_names_nothing_otherwise_than_documents_and_marks_what_none_shows(system):
    judged = {spec: recordings.judge(*spec) for spec in named(system)}

    assert {spec: why for spec, (verdict, why) in judged.items() if verdict == "wrong"} == {}
    said = {spec for spec, unconfirmed in named(system).items() if unconfirmed}
    assert said == {spec for spec, (verdict, _) in judged.items() if verdict != "seen"}


@pytest.mark.parametrize("system", PLANNED)
def test_planned_directory_is_recorded_or_unconfirmed(system):
    """A folder and architecture with a line or a statement about it, or the plan says that none was seen."""
    for one in plans(system):
        for repository in one.repositories:
            match = re.search(r"/cuda/repos/(\w+)/(\w+)/", str(repository["url"]))
            if match:
                known = any(row.arch == match[2] for row in recordings.sure(match[1]))
                known |= any(
                    row["folder"] == match[1] and row["arch"] == match[2] for row in recordings.document("complete")
                )
                assert known or any(row.spec.startswith("directory ") for row in one.unconfirmed), match[0]
        break


@pytest.mark.parametrize("system", sampled([name for name in PLANNED if name.startswith(("rhel", "oracle"))], first))
def test_the_drivers_parts_carry_the_epoch_that_documents_show_and_nothing_else_does(system):
    epochs = {
        row.version.partition(":")[0]
        for name in recordings.sightings()
        if name.startswith("rhel")
        for row in recordings.sure(name)
        if ":" in row.version
    }
    assert epochs == {"3"}
    for _, _, name, version in named(system):
        driver = name.startswith(("nvidia-driver", "libnvidia-ml", "nvidia-kmod", "kmod-nvidia", "nvidia-modprobe"))
        if version and not name.startswith("datacenter-gpu-manager"):
            assert version.startswith("3:") == (driver or name == "nvidia-persistenced"), name


@pytest.mark.parametrize("folder", sorted(packages().repositories.keys))
def test_the_key_of_a_folder_is_the_one_that_documents_show(folder):
    key = packages().repositories.keys[folder]
    rows = [row for row in recordings.document("keys") if row["folder"] == folder]

    assert {row["file"] for row in rows if row["file"]} <= {key.file}
    assert {row["fingerprint"] for row in rows if row["fingerprint"]} <= {key.fingerprint}
    assert key.fingerprint or key.sha256


def test_the_key_of_the_container_toolkit_is_the_one_that_documents_show():
    rows = [row for row in recordings.document("keys") if row["folder"] == recordings.TOOLKIT]

    assert {row["fingerprint"] for row in rows if row["fingerprint"]} == {
        packages().repositories.container_toolkit.fingerprint
    }


def test_the_table_of_plans_is_made_from_the_recordings():
    """python -m tests.stack.recordings"""
    assert recordings.TABLE.read_text(encoding="utf-8") == recordings.table_text()


def test_the_recordings_cite_a_source_for_every_line():
    for folder, rows in recordings.sightings().items():
        for row in rows:
            assert re.fullmatch(r"id \d+|[\w.-]+/[\w.-]+[:#].+", row.source), (folder, row)
            assert row.arch in ("x86_64", "sbsa")
            assert row.kind in ("listing", "lock", "installer", "log")
            assert re.fullmatch(r"(\d{4}-\d\d-\d\d)?", row.seen)
