"""One provisioned lab for all end-to-end tests of a session, its spec, and the table of what went wrong on purpose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import bare_metal as hosts
from tests.lab.changes import OTHER
from tests.lab.e2e import HOSTS, INVENTORY, KEPT, Run, container, docker, installed, make, specified

States = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> Iterator[Path]:
    if not KEPT:
        make("lab-down", tmp_path_factory.mktemp("none"))
    yield tmp_path_factory.mktemp("e2e") / "reports"
    if not KEPT:
        make("lab-down", tmp_path_factory.mktemp("none"))


@pytest.fixture(scope="session")
def first(reports) -> Run:
    return make("provision", reports)


@pytest.fixture
def spec(first) -> Iterator[Path]:
    """The lab's stack.yml, put back afterwards."""
    path = INVENTORY.with_name("stack.yml")
    kept = path.read_text()
    yield path
    path.write_text(kept)


@pytest.fixture(scope="module")
def before(first) -> dict[str, set[str]]:
    """The packages of the provisioned hosts."""
    return {host: installed(host) for host in HOSTS}


@pytest.fixture(scope="module")
def other_spec(before) -> Iterator[Path]:
    """stack.yml with the other set; the lab's own is back after the module."""
    with specified(**OTHER) as path:
        yield path


@pytest.fixture(scope="module")
def bare(first) -> dict[str, set[str]]:
    """The packages of the images that the hosts were made from."""
    found = {}
    for host in HOSTS:
        image = docker("inspect", "--format", "{{.Config.Image}}", container(host))
        words = {"lab-apt": ["dpkg-query", "-W", "-f", "${Package}\n"], "lab-dnf": ["rpm", "-qa", "--qf", "%{NAME}\n"]}
        found[host] = set(docker("run", "--rm", "--entrypoint", words[host][0], image, *words[host][1:]).split())
    return found


@pytest.fixture(scope="module")
def bare_metal(reports) -> Iterator[States]:
    """A lab whose hosts appear as bare metal, as they are bare; one that is kept is brought back to that."""
    if not hosts.KEPT:
        hosts.up()
    elif hosts.is_there(hosts.HOSTS[0], "/etc/gpucheck/stack.json"):
        hosts.deprovisioned(reports)
    yield hosts.states()
    if not hosts.KEPT:
        hosts.OWN.lab("down")


@pytest.fixture
def driver_alone(bare_metal, reports) -> States:
    """Those hosts with the driver alone, whatever the test before left."""
    hosts.provision(reports)
    return hosts.states()


@pytest.fixture(autouse=True)
def _fault_row(request, record_property) -> None:
    """A test's rows of the table."""
    for marker in request.node.iter_markers("fault"):
        record_property("fault", marker.args)


def pytest_terminal_summary(terminalreporter) -> None:
    """Steps x faults: what each fault met, and whether the next run converged or said what a person must do."""
    rows = [
        (*row, outcome.upper(), report.nodeid.rpartition("::")[2])
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        for name, row in getattr(report, "user_properties", ())
        if name == "fault" and (report.when == "call" or outcome != "passed")
    ]
    if not rows:
        return
    heads = ("step", "fault", "outcome", "test")
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(3)]
    terminalreporter.section("faults")
    for row in [heads, *rows]:
        terminalreporter.write_line("  ".join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row[3]]))
