"""Repositories of stack.yml: managed by the hosts, or mirrors with client certificates."""

from datetime import datetime, timezone

import pytest

from gpucheck.repositories import check_plans
from gpucheck.repositories.fetching import Saved
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.spec import managed, parse_spec
from gpucheck.stack.text import plan_text
from tests.stack.asked import planned
from tests.stack.hosts import host

SYSTEMS = ("ubuntu-22.04", "debian-12", "rocky-9", "rhel-9")


@pytest.mark.parametrize("system", SYSTEMS)
def test_managed_repositories_add_no_source(system):
    own, found = planned("", system), planned("repositories: managed\n", system)

    assert (found.sources, found.repositories, found.prerequisites) == ("managed", (), ())
    assert not found.dkms_source
    assert found.components == own.components
    assert found.module_stream == own.module_stream
    assert not own.sources
    assert "those of the hosts; none are added" in plan_text(found)
    assert not any("key" in reason.because for reason in found.reasons if reason.component == "repositories")


def test_gdrcopy_needs_no_repository_of_its_own_then():
    found = planned("gdrcopy: 2.5.1-1.el9\nrepositories: managed\n")

    assert found.components["gdrcopy"]["packages"]


def test_the_lock_keeps_it():
    made = lock(parse_spec("repositories: managed\n", "s"), [host("rocky-9", "t4-x1")])

    assert managed(read_lock(write_lock(made), "lock").spec)


def test_the_controller_claims_nothing_about_sources_it_does_not_see(tmp_path):
    report = check_plans([planned("repositories: managed\n")], Saved(tmp_path), datetime.now(timezone.utc))

    assert report.verdict == "unknown"
    assert {row.state for row in report.groups[0].packages} == {"unknown"}
    assert report.groups[0].reasons == ()


GIVEN = """repositories:
  nvidia-cuda:
    url: https://mirror.example/{distro}/{arch}/
    client_certificate: /etc/gpucheck/mirrors/site.pem
    client_key: /etc/gpucheck/mirrors/site.key
"""


@pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])
def test_the_plans_repository_names_the_files(system):
    mirror, toolkit = planned(GIVEN, system).repositories

    assert mirror["client_certificate"] == "/etc/gpucheck/mirrors/site.pem"
    assert mirror["client_key"] == "/etc/gpucheck/mirrors/site.key"
    assert "client_key" not in toolkit
