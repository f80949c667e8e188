"""What the lab writes down is what Ansible, ssh and the stack room read."""

from ipaddress import IPv4Network
from pathlib import Path

import yaml

from gpucheck.lab.inventory import dump, inventory, stack_spec, write_stack_spec
from gpucheck.lab.model import Lab
from gpucheck.stack.spec import parse_spec

LAB = Lab("unit", IPv4Network("10.99.7.0/24"), Path("/src/gpucheck"))
FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"


def test_the_inventory_reaches_both_hosts_and_trusts_only_the_labs_own_keys():
    group = yaml.safe_load(dump(inventory(LAB, "posing"), "by a test"))["gpu"]

    hosts = {name: host for child in group["children"].values() for name, host in child["hosts"].items()}
    assert {name: host["ansible_host"] for name, host in hosts.items()} == {
        "lab-apt": "10.99.7.11",
        "lab-dnf": "10.99.7.12",
    }
    arguments = group["vars"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments
    assert "UserKnownHostsFile=/src/gpucheck/.lab/unit/known_hosts" in arguments
    assert group["vars"]["stack_spec"] == "/src/gpucheck/.lab/unit/stack.yml"
    assert group["vars"]["preflight_minimum_free_gib"] == 2
    assert group["vars"]["gpucheck_pip_args"][:3] == ["--no-index", "--find-links", "http://10.99.7.10/wheels/"]


def test_the_spec_is_one_that_the_stack_room_understands():
    """The torch version must stay text, and both repositories must be the mirror's."""
    text = dump(stack_spec(LAB, FINGERPRINT, "2.13.0+cpu"), "by a test")

    read = parse_spec(text, "stack.yml")
    assert read.torch == "2.13.0+cpu"
    cuda = read.repositories["nvidia-cuda"]
    assert cuda.url == "http://10.99.7.10/compute/cuda/repos/{distro}/{arch}/"
    assert cuda.key_url == f"{cuda.url}key.asc"
    assert cuda.key_fingerprint == FINGERPRINT


def test_a_changed_spec_is_kept_until_the_lab_has_something_new_to_say(tmp_path):
    """Whoever tries another version in the lab's stack.yml must not lose it to the next `lab up`."""
    path = tmp_path / "stack.yml"
    write_stack_spec(tmp_path, "cuda: auto\n")
    path.write_text("cuda: '12.9'\n")

    write_stack_spec(tmp_path, "cuda: auto\n")
    assert path.read_text() == "cuda: '12.9'\n"

    write_stack_spec(tmp_path, "cuda: auto\nkey: new\n")
    assert path.read_text() == "cuda: auto\nkey: new\n"
    path.unlink()
    write_stack_spec(tmp_path, "cuda: auto\nkey: new\n")
    assert path.exists()
