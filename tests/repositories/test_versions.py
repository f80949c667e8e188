"""Version order: the same as dpkg's and rpm's own."""

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.repositories.index import compare_of, deb_compare, newest_first, rpm_compare

RECORDED = Path(__file__).parent.parent / "data/rpmvercmp.tsv"
RPM = [line.split("\t") for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
DEB = ["580.178.04-1ubuntu1", "580.95.05-0ubuntu1", "1:3.3.0-1", "3.4.0-1", "610-2ubuntu1", "1.0", "1.0-0", "1.0~rc1"]
DEB += ["1.0+b1", "1.0a", "1.0-1+deb12u1", "1.0-1~bpo12+1", "2.30.7-1+cuda13.3", "2.30.7-1+cuda12.9", "9.9", "9.10"]
DEB += ["01.0"]


def sign(number):
    return (number > 0) - (number < 0)


def test_rpm_order_is_that_of_rpm_itself():
    wrong = [row for row in RPM if sign(rpm_compare(row[0], row[2])) != int(row[1])]
    assert len(RPM) > 400
    assert wrong == []


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not installed")
def test_deb_order_is_that_of_dpkg():
    for a in DEB:
        for b in DEB:
            operator = {-1: "lt", 0: "eq", 1: "gt"}[sign(deb_compare(a, b))]
            assert subprocess.run(["dpkg", "--compare-versions", a, operator, b], check=False).returncode == 0, (a, b)


@pytest.mark.parametrize("kind", ["apt", "dnf"])
@given(versions=st.lists(st.from_regex(r"([0-9]:)?[0-9a-z.+~]{1,8}(-[0-9a-z.+~]{1,4})?", fullmatch=True), max_size=4))
def test_the_order_is_total(kind, versions):
    compare = compare_of(kind)
    for a in versions:
        assert compare(a, a) == 0
        for b in versions:
            assert sign(compare(a, b)) == -sign(compare(b, a))
    ordered = newest_first(set(versions), kind)
    assert all(compare(a, b) >= 0 for a, b in pairwise(ordered))


def test_a_dependency_without_a_release_takes_any_release():
    assert rpm_compare("3:580.178.04-1.el9", "3:580.178.04") == 0
    assert rpm_compare("580.178.04-1.el9", "3:580.178.04") < 0
