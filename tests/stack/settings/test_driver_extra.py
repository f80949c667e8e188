"""Further parts of the driver: at its version, held, in its transaction; unconfirmed where no record shows them."""

import pytest

from gpucheck.knowledge.packages import options
from gpucheck.stack import Refusal, StackSpec, parse_spec
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.plan import plan
from tests.stack import recordings
from tests.stack.hosts import SYSTEMS, host
from tests.stack.plan.test_plan import planned
from tests.stack.test_recordings import STATED

EVERY = tuple(sorted(options().driver_extra))


def specs(found):
    return [row["spec"] for row in found.components["driver"]["packages"]]


@pytest.mark.parametrize(
    ("system", "driver", "names", "expected"),
    [
        (
            "ubuntu-24.04",
            "580",
            ("mps", "video"),
            [
                "nvidia-compute-utils-580=580.178.04-1ubuntu1",
                "libnvidia-encode-580=580.178.04-1ubuntu1",
                "libnvidia-decode-580=580.178.04-1ubuntu1",
            ],
        ),
        ("ubuntu-24.04", "595", ("cfg",), ["libnvidia-cfg1=595.91.07-1ubuntu1"]),
        ("debian-12", "580", ("video",), ["libnvidia-encode1=580.178.04-1", "libnvcuvid1=580.178.04-1"]),
        ("rocky-9", "580", ("gl",), ["nvidia-driver-libs-3:580.178.04-1.el9"]),
        # Released with fabric manager: no epoch.
        ("rocky-9", "580", ("nvsdm",), ["libnvsdm-580.178.04-1.el9"]),
        # The driver's own packages of the EL family contain them.
        ("rocky-9", "580", ("mps", "video"), []),
        ("rocky-9", "615", ("cfg",), []),
    ],
)
def test_extra_parts_are_planned_at_the_drivers_version_and_held(system, driver, names, expected):
    plain = planned(system, "t4-x1", StackSpec(driver=driver))
    found = planned(system, "t4-x1", StackSpec(driver=driver, driver_extra=names))

    assert specs(found) == specs(plain) + expected
    assert found.components["driver"]["holds"] == [row["name"] for row in found.components["driver"]["packages"]]
    assert found.order == plain.order


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in ("centos-7", "centos-stream-8")])
def test_no_extra_part_is_named_otherwise_than_a_record_shows_it(system):
    for driver in ("580", "595", "610", "615"):
        cuda = {"cuda": "12.9"} if system == "ubuntu-20.04" else {}
        keys = STATED if system.endswith("-10") else {}
        spec = StackSpec(driver=driver, driver_extra=EVERY, repositories=keys, **cuda)
        found = plan(lock(spec, [host(system, "t4-x1")]), host="node01")
        if isinstance(found, Refusal):
            continue
        folder = str(found.repositories[0]["url"]).rstrip("/").split("/")[-2]
        said = {row.spec for row in found.unconfirmed}
        for row in found.components["driver"]["packages"]:
            verdict, why = recordings.judge(folder, found.arch, row["name"], row["version"])
            assert verdict != "wrong", why
            assert (row["spec"] in said) == (verdict != "seen")


def test_lock_carries_the_parts_and_an_edited_one_is_refused():
    text = write_lock(
        lock(parse_spec("driver_extra: [video, mps, video]\n", "stack.yml"), [host("ubuntu-24.04", "t4-x1")])
    )
    assert read_lock(text, "stack.lock.yml").spec.driver_extra == ("mps", "video")

    edited = read_lock(text.replace("- video", "- sound"), "stack.lock.yml")
    found = plan(edited, host="node01")
    assert isinstance(found, Refusal)
    assert "driver_extra sound" in found.conflicts[0].because
