"""Light hosts: how many fit and whose they are. How they boot and reboot: test_scale."""

import pytest

from gpucheck.lab import lifecycle
from gpucheck.lab.lifecycle import down, refuse_kind
from gpucheck.lab.model import LABEL, make_lab
from gpucheck.lab.system import LabUsageError
from tests.lab.fake_docker import FakeContainer, fake_docker


@pytest.fixture
def lab():
    return make_lab("unit", "10.99.7.0/24")


def test_every_host_has_an_address_and_a_name_of_its_own(lab):
    hosts = lifecycle.specs(lab, 100)

    assert len({lab.ip(host) for host in hosts} - {lab.mirror_ip}) == 100
    assert (hosts[0].name, hosts[99].name) == ("light-001", "light-100")
    assert {lab.container(host.name) for host in hosts} >= {"unit-light-001", "unit-light-100"}


@pytest.mark.parametrize("count", [0, -1, 236, 1000])
def test_more_than_the_subnet_has_is_refused(lab, count):
    with pytest.raises(LabUsageError, match="addresses for 1 to 235"):
        lifecycle.specs(lab, count)


def test_they_simulate_the_machine_that_is_asked_for_and_no_other(lab):
    assert {host.profile for host in lifecycle.specs(lab, 2, "t4-vm-x1")} == {"t4-vm-x1"}
    with pytest.raises(LabUsageError, match="unknown profile 't4'"):
        lifecycle.specs(lab, 2, "t4")


def test_two_kinds_of_lab_do_not_mix(lab):
    whole = fake_docker(containers=(FakeContainer("unit-apt", {LABEL: "unit"}),))
    many = fake_docker(containers=(FakeContainer("unit-light-001", {LABEL: "unit"}),))

    refuse_kind(whole, lab, light=False)
    refuse_kind(many, lab, light=True)
    with pytest.raises(LabUsageError, match="up with two whole hosts"):
        refuse_kind(whole, lab, light=True)
    with pytest.raises(LabUsageError, match="up with light hosts"):
        refuse_kind(many, lab, light=False)


def test_the_mirror_of_a_lab_whose_name_ends_with_light_is_no_host():
    names = ("fast-light-mirror", "fast-light-light-001")
    client = fake_docker(containers=tuple(FakeContainer(name, {LABEL: "fast-light"}) for name in names))

    assert list(lifecycle.light_containers(client, make_lab("fast-light", "10.99.7.0/24"))) == [names[1]]


def test_down_takes_the_image_of_the_copies_along_and_leaves_that_of_others(monkeypatch, tmp_path):
    fake = fake_docker(
        containers=(FakeContainer("unit-light-001", {LABEL: "unit"}),),
        tags=("gpucheck-lab/light-host:unit", "gpucheck-lab/light-host:other", "gpucheck-lab/apt-host:1"),
    )
    monkeypatch.setattr(lifecycle, "reachable", lambda: fake)
    (tmp_path / ".lab/unit").mkdir(parents=True)

    removed = down("unit", tmp_path, images=False)

    assert "image gpucheck-lab/light-host:unit" in removed
    assert fake.tags == ["gpucheck-lab/light-host:other", "gpucheck-lab/apt-host:1"]
