"""The book that is kept on a host: what came with us, what of it nothing needs any more, and the way back."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import Module, module
from tests.playbooks.planned import plan_code, record_code

book = module("install_record")
NAMES = st.sampled_from([f"p{number}" for number in range(8)])


@pytest.fixture
def host(machine, monkeypatch):
    """The planned host before any record: the files of its plan are there, and somebody's own packages."""
    (machine.folder / "stack.json").unlink()
    machine.extras["packages"] = {"bash": "5", "vim": "9"}
    monkeypatch.setattr(record_code, "relations", lambda family: (machine.needs, machine.provides))
    machine.needs, machine.provides = {}, {}
    return machine


def install(host, **packages):
    """What a package manager would do: the packages, each needing the next one's name."""
    host.extras["packages"].update(packages)
    for name in packages:
        host.provides.setdefault(name, set()).add(name)


def begin(host):
    return book.begin(Module({}), host.plan, host.extras)


def finish(host, plan=None):
    return book.finish(Module({}), plan or host.plan, "abc", host.extras["packages"])


def provision(host, **packages):
    """A complete run that brings the planned packages, and these with them."""
    begin(host)
    install(host, **PLANNED, **packages)
    return finish(host)


PLANNED = {"nvidia-dkms-580": "580.178.04-1ubuntu1", "libnccl2": "2.29.3-1+cuda12.9"}


def test_what_came_with_a_run_is_ours_and_nothing_else(host):
    provision(host, dkms="2.8")

    record = json.loads((host.folder / "installed.json").read_text())
    assert record["added"] == ["dkms", "libnccl2", "nvidia-dkms-580"]
    assert record["packages"] == PLANNED
    assert not (host.folder / "transaction.json").exists()


def test_a_run_that_was_cut_off_is_continued(host):
    """The second beginning must not take what the first one brought for the host's own."""
    begin(host)
    install(host, **PLANNED)
    assert record_code.differences(host.plan, host.extras["packages"]) == [
        "an earlier run was interrupted before it was recorded"
    ]

    assert begin(host) is False
    finish(host)

    assert json.loads((host.folder / "installed.json").read_text())["added"] == sorted(PLANNED)


def test_finishing_twice_changes_nothing(host):
    assert provision(host) is True
    assert finish(host) is False


def without_nccl(plan):
    changed = copy.deepcopy(plan)
    changed["components"]["nccl"] = {"packages": [], "holds": []}
    return changed


def test_a_component_that_is_no_longer_planned_is_left_over_with_what_it_alone_needed(host):
    provision(host, dkms="2.8", **{"libnccl-data": "1"})
    host.needs = {"libnccl2": {"libnccl-data"}, "nvidia-dkms-580": {"dkms"}}
    smaller = without_nccl(host.plan)

    assert record_code.differences(smaller, host.extras["packages"]) == [
        "libnccl2 2.29.3-1+cuda12.9 is no longer planned"
    ]
    assert book.leftovers(smaller, host.facts["holds"], host.extras)["packages"] == ["libnccl-data", "libnccl2"]


@pytest.mark.parametrize("ofed", [False, True])
def test_libraries_that_ofed_replaced_are_not_removed(host, ofed):
    """OFED has packages of the same names."""
    provision(host, libibverbs1="39.0-1")
    if ofed:
        host.extras["packages"] |= {"libibverbs1": "2410mlnx54-1.2410068", "mlnx-ofed-kernel-dkms": "24.10.OFED.1-1"}

    left = book.leftovers({**host.plan, "components": {}}, host.facts["holds"], host.extras)["packages"]

    assert left == [*(() if ofed else ("libibverbs1",)), "libnccl2", "nvidia-dkms-580"]


def test_libraries_are_still_ours_when_ofed_is_gone_again(host):
    """A run beside OFED must not forget them: deprovision left them on the host."""
    provision(host, libibverbs1="39.0-1")
    host.extras["packages"]["mlnx-ofed-kernel-dkms"] = "24.10.OFED.1-1"
    begin(host)
    finish(host)
    del host.extras["packages"]["mlnx-ofed-kernel-dkms"]

    left = book.leftovers({**host.plan, "components": {}}, host.facts["holds"], host.extras)["packages"]

    assert "libibverbs1" in left


def test_holds_of_ours_that_the_plan_no_longer_has_are_known_before_the_transaction(host):
    """apt takes no held package away for one that conflicts with it, such as the other flavour's modules."""
    provision(host)
    held = [*host.facts["holds"], "their-own"]

    assert record_code.unplanned(host.plan, host.extras["packages"], held)["held"] == []
    gone = record_code.unplanned(without_nccl(host.plan), host.extras["packages"], held)
    assert gone["held"] == ["libnccl2"]
    assert "libnccl2" in gone["installed"]


def test_what_somebody_elses_package_needs_stays(host):
    provision(host)
    host.extras["packages"]["their-trainer"] = "1"
    host.needs = {"their-trainer": {"libnccl2"}}

    assert book.leftovers(without_nccl(host.plan), host.facts["holds"], host.extras)["packages"] == []


def test_headers_stay_as_long_as_the_host_is_provisioned(host):
    """On the EL family the plan names them with their release; a removal took them along in the lab."""
    host.plan["headers"] = ["kernel-devel-matched-5.14.0-503.el9.x86_64"]
    provision(host, **{"kernel-devel-matched": "5.14.0", "kernel-devel": "5.14.0", "kernel-headers": "5.14.0"})

    assert book.leftovers(host.plan, host.facts["holds"], host.extras)["packages"] == []
    nothing = dict(host.plan, components={}, headers=[], repositories=[], files=[])
    assert "kernel-devel" in book.leftovers(nothing, host.facts["holds"], host.extras)["packages"]


def test_without_components_everything_of_ours_goes(host):
    provision(host, dkms="2.8")
    host.needs = {"nvidia-dkms-580": {"dkms"}}
    nothing = dict(host.plan, components={}, headers=[], repositories=[], files=[])

    left = book.leftovers(nothing, host.facts["holds"], host.extras)

    assert left["packages"] == ["dkms", "libnccl2", "nvidia-dkms-580"]
    assert set(left["paths"]) == set(record_code.planned_paths(host.plan))


def test_a_key_stays_ours_when_its_file_is_gone_already(host):
    """The removal was interrupted after the files: rpm would have trusted the key for ever."""
    provision(host)
    key = host.plan["repositories"][0]["key_fingerprint"]
    host.extras["keys"] = [key, "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB"]
    nothing = {**host.plan, "files": [], "repositories": [], "components": {}}
    assert book.leftovers(nothing, [], host.extras)["keys"] == [key[-8:].lower()]

    (host.folder / "key.gpg").unlink()
    assert book.leftovers(nothing, [], host.extras)["keys"] == [key[-8:].lower()]

    host.extras["keys"] = []
    assert book.leftovers(nothing, [], host.extras)["keys"] == []


def test_a_host_of_an_older_version_counts_its_planned_packages_as_ours(host):
    """Before packages were recorded one by one, the recorded plan was all there was."""
    (host.folder / "stack.json").write_text(json.dumps(host.plan))
    install(host, **PLANNED)

    assert book.leftovers(without_nccl(host.plan), host.facts["holds"], host.extras)["packages"] == ["libnccl2"]


def test_a_file_that_was_there_before_comes_back(host):
    path = host.folder / "nouveau.conf"
    path.write_text("# the site's own\n")
    path.chmod(0o640)
    begin(host)
    path.write_text("blacklist nouveau\n")
    begin(host)

    assert book.restore(Module({}), [str(path)]) is True

    assert path.read_text() == "# the site's own\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_not_there_goes(host):
    path = host.folder / "nouveau.conf"
    path.unlink()
    begin(host)
    path.write_text("blacklist nouveau\n")

    assert book.restore(Module({}), [str(path)]) is True
    assert not path.exists()
    assert book.restore(Module({}), [str(path)]) is False


def test_a_file_that_came_back_stays_if_the_removal_is_interrupted_and_runs_again(host):
    """Its list of our files named it still, and the second run took the site's own file away."""
    path = host.folder / "nouveau.conf"
    path.write_text("# the site's own\n")
    begin(host)
    path.write_text("blacklist nouveau\n")
    finish(host)
    nothing = {**host.plan, "files": [], "repositories": [], "components": {}}

    assert str(path) in record_code.left_files(nothing)
    book.restore(Module({}), record_code.left_files(nothing))
    assert record_code.left_files(nothing) == []
    book.restore(Module({}), record_code.left_files(nothing))

    assert path.read_text() == "# the site's own\n"


@pytest.mark.parametrize("before", ["550-open", ""])
def test_the_stream_of_before_is_that_of_before_the_first_plan_with_one(host, monkeypatch, before):
    """With driver: keep none is planned, and the site's own was taken for none: it would not have come back."""
    enabled = [before]
    monkeypatch.setattr(plan_code, "enabled_stream", lambda module: enabled[0])
    planned = {**host.plan, "module_stream": {"module": "nvidia-driver", "stream": "580-open"}}
    begin(host)

    for _ in range(2):
        book.begin(Module({}), planned, host.extras)
        # Ours from here on.
        enabled[0] = "580-open"
    begin(host)

    assert book.leftovers(host.plan, [], host.extras)["stream"] == before


def test_the_folder_of_drop_ins_goes_with_the_last_of_them_alone(host):
    ours, theirs = host.folder / "nv.service.d/10-gpucheck.conf", host.folder / "other.service.d/10-gpucheck.conf"
    for path in (ours, theirs):
        path.parent.mkdir()
        path.write_text("[Unit]\n")
    (theirs.parent / "site.conf").write_text("[Unit]\n")

    assert book.restore(Module({}), [str(ours), str(theirs)]) is True

    assert not ours.parent.exists()
    assert [path.name for path in theirs.parent.iterdir()] == ["site.conf"]


def newer(plan):
    changed = copy.deepcopy(plan)
    changed["components"]["nccl"]["packages"][0]["version"] = "2.30.7-1+cuda13.3"
    return changed


def test_the_way_back_is_the_last_set_that_was_another_one(host):
    finish(host)
    reworded = dict(host.plan, reasons=["said in other words"])
    finish(host, newer(host.plan))
    finish(host, dict(newer(host.plan), reasons=reworded["reasons"]))

    assert record_code.way_back(plan_code.recorded_plan()) == host.plan


def test_the_way_back_from_a_run_that_was_cut_off_is_the_last_finished_one(host):
    finish(host)
    finish(host, newer(host.plan))
    begin(host)

    assert record_code.way_back(plan_code.recorded_plan()) == newer(host.plan)


def test_a_host_without_record_has_no_way_back(host):
    assert record_code.way_back(plan_code.recorded_plan()) is None


def test_dpkg_relations_are_read_with_alternatives_and_versions(monkeypatch):
    text = "a\tb (= 1), c:any | d\tvirtual (= 2), other\nb\t, libc6\t\n"
    monkeypatch.setattr(record_code, "command", lambda argv: text)

    needs, provides = record_code.dpkg_relations()

    assert needs == {"a": {"b", "c", "d"}, "b": {"libc6"}}
    assert provides["virtual"] == provides["other"] == provides["a"] == {"a"}


def test_rpm_relations_are_read_by_package(monkeypatch):
    text = "Na\nRb\nR/usr/bin/sh\nPa\nPvirtual\nNb\nPb\n"
    monkeypatch.setattr(record_code, "command", lambda argv: text)

    needs, provides = record_code.rpm_relations()

    assert needs == {"a": {"b", "/usr/bin/sh"}, "b": set()}
    assert provides == {"a": {"a"}, "virtual": {"a"}, "b": {"b"}}


@given(st.dictionaries(NAMES, st.sets(NAMES)), st.sets(NAMES))
def test_what_is_reachable_is_closed_and_holds_the_roots(needs, roots):
    provides = {f"p{number}": {f"p{number}"} for number in range(8)}

    seen = record_code.reachable(roots, needs, provides)

    assert roots <= seen
    assert all(needs.get(name, set()) <= seen for name in seen)
    assert all(name in roots or any(name in needs.get(other, ()) for other in seen) for name in seen)
