"""The IMEX daemon of a rack: installed, and enabled only where the site says that the host runs it."""

import pytest

from gpucheck.stack import SpecError, StackSpec, parse_spec
from gpucheck.stack.settings.imex import NODES, Imex
from tests.stack.plan.test_plan import planned


def row(found):
    """The service's row."""
    return next(one for one in found.services if one["name"] == "nvidia-imex")


def test_the_daemon_is_installed_and_left_alone_by_default():
    """Without a list of nodes it fails; a job's prolog or NVIDIA's DRA driver runs one otherwise."""
    found = planned("ubuntu-24.04", "gb200-x4")

    assert [one["name"] for one in found.components["fabric_manager"]["packages"]] == ["nvidia-imex"]
    assert row(found) == {"name": "nvidia-imex", "enabled": False, "state": "stopped"}
    assert NODES not in {file["path"] for file in found.files}


def test_what_a_prolog_starts_is_not_stopped():
    assert row(planned("ubuntu-24.04", "gb200-x4", StackSpec(imex=Imex(service="slurm"))))["state"] == "leave"


def test_systemd_starts_it_with_the_list_of_nodes():
    spec = parse_spec("imex: {service: systemd, nodes: [10.0.0.2, 10.0.0.1]}\n", "stack.yml")
    found = planned("ubuntu-24.04", "gb200-x4", spec)

    assert row(found) == {"name": "nvidia-imex", "enabled": True, "state": "started"}
    assert [file["content"] for file in found.files if file["path"] == NODES] == ["10.0.0.2\n10.0.0.1\n"]
    assert NODES not in {file["path"] for file in planned("ubuntu-24.04", "h100-sxm5-x8", spec).files}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("imex: systemd\n", "stack.yml:1: imex: service systemd needs nodes"),
        ("imex: {service: slurm, nodes: [10.0.0.1]}\n", "stack.yml:1: imex: nodes are for service systemd"),
        ("imex: {service: systemd, nodes: [n1]}\n", "stack.yml:1: imex.nodes[0]: 'n1' is not an IP address"),
        ("imex: on\n", "stack.yml:1: imex: on is not possible"),
    ],
)
def test_a_mistake_names_file_line_and_key(text, message):
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "stack.yml")

    assert str(caught.value).startswith(message)
