"""Versions are numbers. Every comparison that text gets wrong is here."""

import pytest

from gpucheck.stack.versions import cc, parse, request, sm


@pytest.mark.parametrize(
    ("older", "newer"),
    [("12.9.1", "12.10.0"), ("2.9.1", "2.10.0"), ("580.95.05", "580.178.04"), ("9.5.1.17", "9.10.2.21")],
)
def test_versions_compare_as_numbers(older, newer):
    assert older > newer  # as text
    assert parse(older) < parse(newer)


def test_compute_capabilities_compare_as_numbers():
    """12.0 is newer than 9.0, and sm_120 is 12.0, not 1.20."""
    assert cc("12.0") > cc("9.0")
    assert [sm(75), sm(120)] == [(7, 5), (12, 0)]


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


def test_build_and_revision_are_kept_apart():
    """A driver may carry its package revision, a wheel its build."""
    assert request("580.95.05-0ubuntu1").revision == "0ubuntu1"
    assert request("535.309.01-0+deb12u1").package_revision == "0+deb12u1"
    assert (request("2.14.1+cu126").build, request("2.14.1+cu126").package_revision) == ("cu126", "")


@pytest.mark.parametrize("text", ["", "newest", "12.x", ">=wrong", "v12"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match=r"range|version"):
        request(text)
