"""Container engines in the plan: where the toolkit is, unless the site says that it tells its engines itself."""

import pytest

from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import SpecError, parse_spec
from tests.stack.hosts import host


def planned(text: str) -> Plan:
    found = plan(
        lock(parse_spec(text, "stack.yml"), [host("ubuntu-22.04", "t4-x1")]), group="ubuntu-22.04-x86_64-1eb8x1"
    )
    assert isinstance(found, Plan)
    return found


def test_docker_and_kubelets_containerd_are_told_by_default():
    found = planned("")

    assert found.container_engines
    rows = {row["name"]: row for row in found.container_engines}
    assert rows["docker"]["files"] == ("/etc/docker/daemon.json",)
    assert (rows["containerd"]["beside"], rows["containerd"]["action"]) == ("kubelet", "restarted")
    assert found.order.index("container_engine") == found.order.index("container_toolkit") + 1


@pytest.mark.parametrize("text", ["container_engines: leave\n", "container_toolkit: none\n"])
def test_engines_that_the_site_configures_or_has_no_toolkit_for_are_left(text):
    found = planned(text)

    assert not found.container_engines
    assert "container_engine" not in found.order


def test_a_mistyped_choice_names_the_line_and_what_there_is():
    with pytest.raises(SpecError) as caught:
        parse_spec("container_engines: leaf\n", "stack.yml")

    assert "stack.yml:1: container_engines: 'leaf' is not possible. Did you mean 'leave'?" in str(caught.value)
