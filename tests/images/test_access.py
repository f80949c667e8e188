"""The driver's control device is there and does not open: who denies it, and what helps."""

import pytest
from msgspec.structs import replace

from gpucheck.images.judge import evaluate_driver
from gpucheck.images.probe import Rights
from gpucheck.model import Finding
from tests.images.inside import OWN, WITHOUT_GPUS


def denied(**own) -> Finding:
    (finding,) = evaluate_driver(replace(WITHOUT_GPUS, own=replace(OWN, **own)))
    return finding


def rights(mode, owner=0, group=44, user=1000, groups=(1000,)):
    return Rights(mode=mode, uid=owner, gid=group, process_uid=user, process_gids=groups)


@pytest.mark.parametrize(
    ("of", "code"),
    [
        (rights("0600"), "images.device-denied-by-mode"),
        (rights("0660"), "images.device-denied-by-mode"),
        (rights("0666", group=0), "images.device-denied-by-policy"),
        (rights("0660", groups=(44, 1000)), "images.device-denied-by-policy"),
        # Rootless: root of the namespace is another user to the host, whose root shows as nobody.
        (rights("0660", owner=65534, group=65534, user=0, groups=(0,)), "images.device-denied-by-unknown-group"),
        (rights("0600", user=0, groups=(0,)), "images.device-denied-by-policy"),
    ],
)
def test_no_access_is_no_loss_and_names_who_denies_it(of, code):
    finding = denied(device="EACCES", rights=of)

    assert (finding.cause, finding.code) == (None, code)
    assert (finding.action, finding.owner) == ("change-setting", "user")
    assert f"mode {of.mode}" in finding.evidence[-1]


def test_devices_that_the_cgroup_denies_are_likely_lost_and_not_for_certain():
    """A container that got /dev as a volume looks the same."""
    assert denied(device="EPERM").confidence == "likely"
