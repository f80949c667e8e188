"""Network cards of another author: data/foreign_infiniband/SOURCE.md."""

import json
import lzma
from pathlib import Path

import pytest

from gpucheck.checks.network import address, firmware, ports, rails
from gpucheck.host.network import read_rdma
from gpucheck.imports import read_all
from gpucheck.run.pastes import diagnosis
from tests.checks.judging import FAIL, PASS, UNKNOWN, WARN, judge
from tests.checks.network.cards import gpu, nic
from tests.fakes import facts

DATA = json.loads(lzma.decompress((Path(__file__).parents[2] / "data/foreign_infiniband/h100.json.xz").read_bytes()))
DOWN, SLOW = (FAIL, "network.port-down"), (FAIL, "network.port-slow")
UNCONFIGURED = (FAIL, "network.port-not-configured")
# Settings of the one odd card -> what is reported of it, and nothing else.
ODD = {
    "port_state=DOWN phys_state=Polling": DOWN,
    "port_state=DOWN phys_state=Disabled": DOWN,
    "port_state=DOWN phys_state=Training": DOWN,
    "port_state=DOWN phys_state=PhyTest": DOWN,
    "port_state=INIT": UNCONFIGURED,
    "port_state=ARMED": UNCONFIGURED,
    "port_state=ACTIVE_DEFER": DOWN,
    "port_state=ACTIVE phys_state=LinkErrorRecovery": (WARN, "network.port-recovering"),
    "rate_gbps=40": SLOW,
    "rate_gbps=100": SLOW,
    "fw_version=28.36.1010": (WARN, "network.firmware-differs"),
    # A card for storage may be one of another kind: it is compared with none.
    "link_layer=Ethernet": None,
}


def written(folder, files):
    for name, content in files.items():
        path = folder / "sys/class/infiniband" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def loud(folder):
    """What is reported of the cards, each below the switch of a GPU."""
    pci = (*map(gpu, range(8)), *(nic(n, f"mlx5_{n}") for n in range(8)))
    host = facts(pci=pci, rdma=read_rdma(folder))
    every = [finding for check in (ports, address, firmware, rails) for finding in judge(check, host)]
    return {(one.verdict, one.code, one.subject) for one in every if one.verdict is not PASS}


def test_the_cards_as_they_are_pass(tmp_path):
    assert loud(written(tmp_path, DATA["files"])) == set()


@pytest.mark.parametrize("settings", ODD)
def test_one_odd_card_is_named_and_no_other(settings, tmp_path):
    told = ODD[settings]

    found = loud(written(tmp_path, DATA["files"] | DATA["odd"][settings]["files"]))

    assert found == ({(*told, "nic:0000:34:00.0")} if told else set())


@pytest.mark.parametrize("settings", DATA["odd"])
def test_ibstat_of_the_same_cards_gives_no_kinder_verdict(settings):
    """Of a paste the use of a port is not known: a port that is down is at most a warning, and none passes."""
    before, _, rest = DATA["ibstat"].partition("CA 'mlx5_3'")
    after = rest[rest.index("CA 'mlx5_4'") :]

    text = before + DATA["odd"][settings]["ibstat"] + after
    found = diagnosis([read_all(text.encode(), "-")], sources=("-",))

    told = ODD[settings]
    # ibstat's text has the firmware, which is not compared in a paste.
    is_compared = told is not None and told[1] != "network.firmware-differs"
    assert found.verdict in ((WARN, UNKNOWN) if is_compared else (PASS,))
    assert {one.subject for one in found.findings if one.verdict is WARN} <= {"nic:mlx5_3"}
