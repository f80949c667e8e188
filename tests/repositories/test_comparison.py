"""A plan against what its repositories hold."""

import shutil
from itertools import chain

import msgspec
import pytest

from gpucheck.repositories import check_plans
from gpucheck.repositories.comparison import to_text
from gpucheck.repositories.fetching import Network, place_of, saved
from gpucheck.stack import StackSpec
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import plan
from gpucheck.stack.rdma import LIBRARIES
from tests.repositories import mirror
from tests.repositories.conftest import NOW
from tests.repositories.mirror import Made
from tests.stack.hosts import host


def planned(system="ubuntu-24.04", gpus="h100-sxm5-x8"):
    """The plan of one group of hosts, as the tables make it."""
    made = lock(StackSpec(driver="580"), [host(system, gpus)])
    return plan(made, group=next(iter(made.groups)))


def specs(found):
    return [one for component in found.components.values() for one in component["packages"]]


def packages_of(found) -> list[Made]:
    """Every planned package, as its repository would list it."""
    versions = [(one["name"], one["spec"][len(one["name"]) + 1 :] or "1-1") for one in specs(found)]
    return [Made(name, version) for name, version in versions]


class Site:
    """The repositories of a plan on a disk, and the plan with their addresses."""

    def __init__(self, root, publisher, found) -> None:
        self.root, self.publisher, self.found = root, publisher, found
        self.packages = {one.name: one for one in packages_of(found)}
        self.extra: list[Made] = []

    def report(self):
        kind = self.found.package_manager
        getattr(mirror, kind)(self.root / "all", self.publisher, [*self.packages.values(), *self.extra])
        return self.compared_with(self.root / "all")

    def compared_with(self, root):
        """The report of the plan with the repositories in a directory."""
        kind = self.found.package_manager
        rows = tuple(dict(row) | self.publisher.row(root, kind, name=row["name"]) for row in self.found.repositories)
        changed = msgspec.structs.replace(self.found, repositories=rows, dkms_source=None)
        return check_plans([changed], Network(seconds=5).get, NOW)

    def change(self, name, **changes):
        self.packages[name] = self.packages[name]._replace(**changes)


@pytest.fixture(params=["ubuntu-24.04", "rocky-9"])
def site(request, tmp_path, publisher):
    return Site(tmp_path, publisher, planned(request.param))


def only(report, state):
    return [one for group in report.groups for one in group.packages if one.state == state]


def test_everything_there_passes(site):
    report = site.report()

    assert report.verdict == "pass"
    assert len(only(report, "present")) == len(specs(site.found)) > 10
    assert report.groups[0].download_bytes == 1000 * len(specs(site.found))
    assert f"{len(specs(site.found))} of {len(specs(site.found))} planned packages are there" in to_text(report)


def test_an_address_that_one_group_takes_unsigned_is_verified_for_the_group_that_does_not(tmp_path, publisher):
    """What was read of an address once was taken for every repository with that address."""
    site = Site(tmp_path, publisher, planned("rocky-9"))
    mirror.dnf(tmp_path / "all", publisher, list(site.packages.values()))
    (tmp_path / "all/repodata/repomd.xml.asc").unlink()
    rows = [tuple(dict(row) | publisher.row(tmp_path / "all", "dnf", name=row["name"], signed=signed)
                  for row in site.found.repositories) for signed in ("packages", "both")]  # fmt: skip
    plans = [msgspec.structs.replace(site.found, repositories=one, dkms_source=None) for one in rows]

    report = check_plans(plans, Network(seconds=60).get, NOW)

    assert [one.state for one in report.repositories] == ["read", "rejected"]
    assert report.verdict == "fail"


def test_packages_of_the_system_are_not_looked_for_at_nvidias(site):
    """Planned ones, and what others depend on."""
    site.change(dependency(site)[0], requires="libc6 (>= 99), kmod")
    names = ("pciutils", *chain(*LIBRARIES.values()))
    tools = {"packages": [{"name": name, "version": None, "spec": name} for name in names]}
    site.found = msgspec.structs.replace(site.found, components={**site.found.components, "acs": tools})

    report = site.report()

    assert report.verdict == "pass"


def test_a_missing_revision_is_named_with_the_nearest(site):
    name = "nvidia-persistenced"
    version = site.packages[name].version
    other = version.replace("-1", "-2")
    site.change(name, version=other)
    site.extra = [Made(name, "3:590.48.01-1.el9"), Made(name, version.replace("178.04", "95.05"))]

    report = site.report()

    assert report.verdict == "fail"
    (missing,) = only(report, "missing")
    assert missing.spec.startswith(name)
    assert missing.nearest[0] == other
    assert missing.nearest[1].startswith(("580.95", "3:580.95"))
    assert "no repository has this version of nvidia-persistenced" in missing.why
    assert f"Nearest: {other}" in to_text(report)


def test_a_missing_name_is_named_with_names_like_it(site):
    name = next(name for name in site.packages if name.startswith(("nvidia-utils", "nvidia-driver-cuda-libs")))
    made = site.packages.pop(name)
    site.extra = [made._replace(name=f"{name}-server")]

    (missing,) = only(site.report(), "missing")

    assert f"{name}-server" in missing.nearest
    assert missing.why.startswith(f"no repository has {name}")


def older(site):
    name = "nvidia-persistenced"
    version = site.packages[name].version
    site.change(name, version=version.replace("178.04", "95.05"))


def test_a_mirror_that_is_behind_is_named(site):
    older(site)

    (missing,) = only(site.report(), "missing")

    assert f"{site.found.repositories[0]['name']} and nvidia-container-toolkit are mirrors" in missing.why
    assert missing.why.endswith("the mirror is behind")
    assert missing.fix == "Synchronize the mirror"


def test_the_same_at_nvidias_own_address_is_no_mirror(site, publisher):
    """Read as saved: the files stand where those of NVIDIA's address are saved."""
    older(site)
    site.report()
    rows = []
    for row in site.found.repositories:
        place = site.root / "saved" / place_of(row["url"])
        shutil.copytree(site.root / "all", place)
        shutil.copy(site.root / "all/key.asc", site.root / "saved" / place_of(row["key_url"]))
        rows.append(dict(row) | {"key_fingerprint": publisher.fingerprint})
    found = msgspec.structs.replace(site.found, repositories=tuple(rows), dkms_source=None)

    (missing,) = only(check_plans([found], saved(site.root / "saved"), NOW), "missing")

    assert "mirror" not in missing.why
    assert missing.fix.startswith("State the nearest version in stack.yml")


def dependency(site):
    """(package, the planned package it is made to depend on, how the kind writes an exact dependency)."""
    names = [name for name in site.packages if name.startswith(("nvidia-persistenced", "nvidia-modprobe", "libnvidia"))]
    return names[0], names[-1]


def test_a_dependency_on_another_version_than_planned_is_a_conflict(site):
    one, other = dependency(site)
    site.change(one, requires=f"{other} (= 1:1.0-1)")

    report = site.report()

    assert report.verdict == "fail"
    (conflict,) = report.groups[0].dependencies
    assert conflict.requires == f"{other} = 1:1.0-1"
    assert conflict.why == f"the plan installs {other} {site.packages[other].version}"


def test_a_dependency_that_no_repository_has_in_that_version_is_named(site):
    one, _ = dependency(site)
    site.change(one, requires="libnvidia-part (= 2.0-1)")
    site.extra = [Made("libnvidia-part", "1.0-1"), Made("libnvidia-part", "1.5-1")]

    (conflict,) = site.report().groups[0].dependencies

    assert conflict.why == "the repositories have 1.5-1, 1.0-1"


def test_what_a_package_brings_counts_to_the_download_and_is_followed(site):
    one, _ = dependency(site)
    site.change(one, requires="libpart")
    site.extra = [Made("part-real", "1-1", "deeper (= 9-1)", "libpart", size=5000), Made("deeper", "1-1")]

    report = site.report()

    assert report.groups[0].download_bytes == 1000 * len(site.packages) + 5000
    (conflict,) = report.groups[0].dependencies
    assert conflict.of == "part-real 1-1"


def test_packages_of_another_release_differ_from_missing_ones(tmp_path, publisher):
    site = Site(tmp_path, publisher, planned("rocky-9"))
    site.packages = {
        name: one._replace(version=one.version.replace(".el9", ".el8")) for name, one in site.packages.items()
    }

    missing = only(site.report(), "missing")

    assert missing
    assert all("built for el8, and the hosts are el9" in one.why for one in missing)


def test_a_repository_that_cannot_be_read_leaves_its_packages_unknown(site):
    report = site.compared_with(site.root / "gone")

    assert report.verdict == "unknown"
    assert {row.state for row in report.repositories} == {"unreachable"}
    assert len(only(report, "unknown")) == len(specs(site.found))
    assert "could not be read" in to_text(report)


def test_a_driver_of_ubuntus_own_archive_is_not_looked_for_at_nvidias(tmp_path, publisher):
    driver = "580.95.05-0ubuntu0.24.04.1"
    made = lock(StackSpec(source="ubuntu", driver=driver), [host("ubuntu-24.04", "h100-sxm5-x8")])
    report = Site(tmp_path, publisher, plan(made, group=next(iter(made.groups)))).report()

    assert {one.component for one in only(report, "unknown")} == {"driver", "fabric_manager"}
    assert "archive of noble" in only(report, "unknown")[0].why
    assert not only(report, "missing")


def test_a_group_whose_dependencies_need_too_many_comparisons_is_unknown(site, monkeypatch):
    from gpucheck.repositories import index

    monkeypatch.setattr(index, "MOST_COMPARED", 1)
    name = next(iter(site.packages))
    site.change(name, requires="missing-one (= 1-1), missing-two (= 1-1)")
    site.extra = [Made("missing-one", "1-1"), Made("missing-two", "1-1")]
    report = site.report()

    assert (report.verdict, only(report, "missing")) == ("unknown", [])
    (row,) = only(report, "unknown")
    assert "more than 1 comparisons" in row.why
