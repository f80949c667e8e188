"""Further parts of the driver: at its version, held, in its transaction; unconfirmed where no record shows them."""

import pytest

from gpucheck.knowledge.packages import options
from gpucheck.stack import Refusal, StackSpec, parse_spec
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.plan import plan
from tests.stack import recordings
from tests.stack.hosts import SYSTEMS, host

EVERY = tuple(sorted(options().driver_extra))


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in ("centos-7", "centos-stream-8")])
def test_no_extra_part_is_named_otherwise_than_a_record_shows_it(system):
    for driver in ("550", "570", "580", "595", "610", "615", "620"):
        cuda = {"cuda": "12.9"} if system == "ubuntu-20.04" else {}
        spec = StackSpec(driver=driver, driver_extra=EVERY, **cuda)
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
