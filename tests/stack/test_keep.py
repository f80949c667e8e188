"""driver: keep: the set is chosen for the driver that the hosts have, and no plan touches that driver."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.knowledge import tables
from gpucheck.knowledge._load import FOLDER
from gpucheck.model import DriverState
from gpucheck.stack import StackSpec, parse_spec, resolve
from gpucheck.stack.facts import RdmaFacts
from gpucheck.stack.lock import lock, read_lock, still_valid, target_of_group, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.rdma import MODULE, PATH, SOURCE, rdma_plan
from gpucheck.stack.text import rules_page, statements
from gpucheck.stack.types import Refusal
from gpucheck.stack.versions import parse, request
from tests.stack.asked import plan_of
from tests.stack.hosts import host
from tests.stack.regenerate import PAGE

SPEC = StackSpec(driver="keep")


def with_driver(system, gpus, version, flavour="proprietary", name="a", **changes):
    driver = {"loaded_version": version, "loaded_flavour": flavour} | {
        "installed_version": version,
        "installed_flavour": flavour,
    }
    return msgspec.structs.replace(host(system, gpus, name), driver=DriverState(**{**driver, **changes}))


@pytest.mark.parametrize(
    ("system", "gpus", "version", "flavour", "cuda"),
    [
        ("ubuntu-22.04", "h100-sxm5-x8", "550.54.15", "open", "12.4"),
        ("debian-12", "rtx3090-x2", "535.309.01", "proprietary", "12.2"),
        ("rocky-9", "a100-sxm4-x8", "570.133.20", "open", "12.8"),
        ("ubuntu-24.04", "b200-x8", "580.95.05", "open", "13.0"),
    ],
)
def test_what_fits_the_present_driver_is_planned_and_the_driver_is_not(system, gpus, version, flavour, cuda):
    made = lock(SPEC, [with_driver(system, gpus, version, flavour)])
    ((name, group),) = made.groups.items()
    found = plan(made, group=name)

    assert name.endswith(f"-driver{version}-{flavour}")
    assert (group.stack.driver.version, group.stack.driver.kernel_module) == (version, flavour)
    assert group.stack.cuda.startswith(f"{cuda}.")
    assert (found.components["driver"], found.components["fabric_manager"]) == ({"packages": [], "holds": []},) * 2
    assert found.components["cuda"]["packages"]
    assert (found.headers, found.compilers, found.services, found.module_stream) == ((), (), (), None)
    assert (found.reboot, found.header_metapackage) == ({"when": ()}, None)
    paths = {row["path"] for row in found.files}
    assert not [path for path in paths if path.startswith(("/etc/modprobe.d", "/etc/modules-load.d", "/etc/systemd"))]
    assert found.expected["driver_version"] == version


def test_the_repository_of_cuda_brings_no_driver_to_these_hosts():
    """By the system's own upgrades: it has a newer driver of the same name."""
    made = lock(
        SPEC,
        [with_driver("debian-12", "rtx3090-x2", "535.309.01"), with_driver("rocky-9", "t4-x1", "550.54.15", name="b")],
    )
    apt, dnf = plan(made, host="a"), plan(made, host="b")

    (pin,) = [row["content"] for row in apt.files if row["path"] == "/etc/apt/preferences.d/gpucheck-nvidia"]
    assert "Pin: release o=NVIDIA\nPin-Priority: -1" in pin
    excluded = {row["name"]: row.get("exclude", "") for row in dnf.repositories}
    assert "kmod-nvidia*" in excluded["cuda-rhel9-x86_64"]
    assert not any(
        "exclude" in row for row in plan(lock(StackSpec(), [host("rocky-9", "t4-x1", "b")]), host="b").repositories
    )


@pytest.mark.parametrize(
    ("text", "because", "try_"),
    [
        (
            "cuda: 13.0",
            "driver 550.54.15 is older than 580.65.06, the minimum of every CUDA 13 program",
            "cuda 12.4.1 inst",
        ),
        ("nvidia_modprobe: auto", "nvidia-modprobe comes with the driver, which is kept as it is", ""),
    ],
)
def test_what_the_present_driver_cannot_carry_is_refused_with_what_it_can(text, because, try_):
    spec = parse_spec(f"driver: keep\n{text}\n", "stack.yml")
    (conflict,) = lock(spec, [with_driver("ubuntu-22.04", "t4-x1", "550.54.15")]).refused["a"].conflicts

    assert conflict.because == because
    assert conflict.try_.startswith(try_)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict.fromkeys(("loaded_version", "installed_version")), "no NVIDIA driver that could be kept"),
        ({"installed_version": "580.95.05"}, "550.54.15 is loaded on a and 580.95.05 is installed"),
        ({"loaded_version": "x" * 99}, "the version of the driver of a is 'xxx"),
        ({"loaded_flavour": None, "installed_flavour": "odd"}, "no NVIDIA driver that could be kept"),
    ],
)
def test_a_host_without_a_settled_driver_is_refused_alone(changes, words):
    hosts = [with_driver("ubuntu-22.04", "t4-x1", "550.54.15", **changes)]
    made = lock(SPEC, [*hosts, with_driver("ubuntu-22.04", "t4-x1", "550.54.15", name="b")])

    assert words in made.refused["a"].conflicts[0].because
    assert [list(group.hosts) for group in made.groups.values()] == [["b"]]


def test_hosts_with_other_drivers_have_sets_of_their_own_and_their_lock_survives_its_file():
    hosts = [with_driver("ubuntu-22.04", "t4-x1", version, name=version) for version in ("535.1.1", "550.54.15")]
    made = lock(SPEC, hosts)

    assert len(made.groups) == 2
    assert read_lock(write_lock(made), "stack.lock.yml") == made
    for group in made.groups.values():
        assert still_valid(target_of_group(group), group.stack, SPEC) == ()
    assert "kept" not in write_lock(lock(StackSpec(), hosts))


def test_without_the_facts_of_a_host_there_is_nothing_to_keep():
    found = resolve(["T4"], "ubuntu-22.04", spec=SPEC)

    assert isinstance(found, Refusal)
    assert "no host was read" in found.conflicts[0].because
    assert "gpucheck stack lock --facts" in found.conflicts[0].try_


CARD = RdmaFacts(bus_id="0000:06:00.0", device_id="1021", kind="infiniband")
KERNELS = ("4.18.0-553.el8.x86_64", "5.4.0-216-generic", "5.11.9", "5.12.0", "5.14.0-570.el9", "6.8.0-106-generic")


def planned(hosts, **which):
    return plan_of(StackSpec(), hosts, **which)


def peermem(found):
    """(what the plan writes for it, what it says of RDMA)."""
    contents = [file["content"] for file in found.files if file["path"] == PATH]
    return contents, [one.because for one in found.reasons if (one.component, one.source) == ("rdma", SOURCE)]


def test_hosts_of_a_group_may_differ_and_each_has_its_own_plan():
    names = {"a": {"rdma": (CARD,), "ofed": "24.10"}, "b": {"rdma": (CARD,)}, "c": {}}
    hosts = [host("rocky-9", "h100-sxm5-x8", name, **changes) for name, changes in names.items()]

    of_group, said = peermem(planned(hosts, group="rocky-9-x86_64-2330x8"))

    assert of_group == []
    assert sorted(words.partition(":")[0] for words in said) == ["1 of 3 hosts (a)", "1 of 3 hosts (b)"]
    assert peermem(planned(hosts, host="a"))[0] == [f"{MODULE}\n"]
    assert "1 of" not in peermem(planned(hosts, host="b"))[1][0]
    assert peermem(planned(hosts, host="c")) == ([], [])


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.sampled_from(["none", "inbox", "ofed"]), st.sampled_from(KERNELS)),
        min_size=1,
    ),
    st.sampled_from(["h100-sxm5-x8", "v100-sxm2-x8"]),
)
def test_plan_of_a_group_agrees_with_the_plan_of_each_host(hosts, gpus):
    """No file that a host does not get, and every host with cards is counted once."""
    stack = planned([host("ubuntu-24.04", gpus)], host="node01").stack

    files, reasons = rdma_plan(hosts, stack)

    own = {name: rdma_plan({name: one}, stack) for name, one in hosts.items()}
    assert bool(files) == all(mine for mine, _ in own.values())
    said = {reason.because.partition("): ")[2] or reason.because for reason in reasons}
    assert said == {reason.because for _, mine in own.values() for reason in mine}
    counted = [int(r.because.split(" of ")[0]) if "hosts (" in r.because else len(hosts) for r in reasons]
    assert sum(counted) == sum(rdma != "none" for rdma, _ in hosts.values())


@pytest.mark.parametrize(
    ("older", "newer"),
    [("12.9.1", "12.10.0"), ("2.9.1", "2.10.0"), ("580.95.05", "580.178.04"), ("9.5.1.17", "9.10.2.21")],
)
def test_versions_compare_as_numbers(older, newer):
    assert older > newer  # as text
    assert parse(older) < parse(newer)


@pytest.mark.parametrize(
    ("asked", "version", "fits"),
    [
        ("12.9", "12.9.1", True),
        ("12.9", "12.90.1", False),
        ("580", "580.178.04", True),
        ("580.95.05", "580.178.04", False),
        (">=12.8,<13", "12.9.1", True),
        (">=12.8,<13", "13.0.2", False),
        ("auto", "1.0", True),
        ("none", "1.0", False),
        ("2.14.1+cu126", "2.14.1", True),
    ],
)
def test_request_matches_versions(asked, version, fits):
    assert request(asked).matches(version) is fits


def test_the_page_is_current():
    """After a change of a rule: gpucheck stack rules -o docs/stack-rules.md."""
    assert PAGE.read_text(encoding="utf-8") == rules_page()


def test_every_rule_has_sources_tables_and_code_whose_statement_is_a_sentence():
    """R1 to R25, no gap, and no rule in the code that the page does not know."""
    rules = [f"R{number}" for number in range(1, 26)]

    assert list(tables.rules()) == rules
    assert {rule for rule, _, _ in statements()} == set(rules)
    for row in tables.rules().values():
        assert row.source
        assert set(row.source) <= set(tables.sources())
        assert {f"{name}.yml" for name in row.tables} <= {path.name for path in FOLDER.glob("*.yml")}
    for _, _, sentence in statements():
        assert sentence[0].isupper()
        assert sentence.endswith(".")
