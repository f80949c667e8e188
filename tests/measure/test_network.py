"""gpucheck network on this host: real processes with a stand-in on PATH that listens, connects and prints as perftest.

What perftest itself does is in tests/network, in a virtual machine.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpucheck.measure.collectives.rank import MeasuredCollective, RankReport
from gpucheck.measure.network import NetworkOptions, Nic, measure, nccl, perftest, rounds
from gpucheck.measure.network.perftest import PROGRAMS, Transfer, measured
from gpucheck.model.diagnosis.observations import ObservedNic, Port
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.processes.ranks.nccl_log import parse
from tests import fakes
from tests.checks.network.cards import host
from tests.machines import h100
from tests.measure.collectives import samples as collectives
from tests.shared import END_S
from tests.train.conftest import heed_interrupts

# Server and client as perftest; its environment says what goes wrong.
STAND_IN = """#!{python} -IS
import os, socket, sys, time
words = sys.argv[1:]
how, port = os.environ.get("HOW", ""), int(words[words.index("-p") + 1]) if "-p" in words else 0
if "--version" in words or "--help" in words:
    print("Version: 6.06")
elif words[-1] != "127.0.0.1":
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].recv(1)
elif how == "hangs":
    time.sleep(1000)
else:
    with socket.create_connection(("127.0.0.1", port)):
        if how == "wrong":
            sys.exit(" Couldn't allocate MR")
        print("                    RDMA_Write BW Test\\n Mtu             : 4096[B]")
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        if how != "no row":
            print(" 65536      100000           0.00               390.00              0.7")
"""
CARD = ObservedNic(name="mlx5_0", rate_gbit_s=400.0)


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """The stand-in by every name of perftest; its processes have this directory in their words."""
    for program in PROGRAMS.values():
        (tmp_path / program).write_text(STAND_IN.format(python=sys.executable))
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def left(folder):
    """Processes of the stand-in."""
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(path)]


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_tests_run_at_the_same_time_each_on_its_own_port(tool):
    one, other = measured([Transfer("write", CARD, CARD), Transfer("write", CARD, CARD)])

    assert (one.value, one.unit, one.mtu) == (390.0, "Gb/s", 4096)
    assert other == one
    assert left(tool) == []


@pytest.mark.parametrize(
    ("how", "reason"),
    [("wrong", "Couldn't allocate MR"), ("no row", "#bytes     #iterations"), ("hangs", "no end within 1.2 s")],
)
def test_without_a_row_it_failed_with_the_reason(tool, monkeypatch, how, reason):
    monkeypatch.setenv("HOW", how)
    monkeypatch.setattr(perftest, "SLACK_S", 0.2 if how == "hangs" else 30.0)
    (outcome,) = measured([Transfer("write", CARD, CARD)])

    assert outcome.startswith(reason)
    assert left(tool) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_or_listens_after_a_signal(tool, monkeypatch, number):
    monkeypatch.setenv("HOW", "hangs")
    program = (
        "from gpucheck.processes.signals import ended_by_signals\n"
        "from gpucheck.measure.network.perftest import Transfer, measured\n"
        "from gpucheck.model.diagnosis.observations import ObservedNic\n"
        "with ended_by_signals(): measured([Transfer('write', ObservedNic(name='a'), ObservedNic(name='b'))])"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts)
    while len(left(tool)) < 2:
        time.sleep(0.02)
    process.send_signal(number)
    process.wait(END_S)
    limit = time.monotonic() + END_S
    while left(tool) and time.monotonic() < limit:
        time.sleep(0.02)

    assert left(tool) == []


def test_a_simulated_card_is_not_looked_for_on_this_host(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GPUCHECK_SIMULATOR", raising=False)  # another test of this process may have left one
    found = measure(fakes.live(monkeypatch, host()), NetworkOptions(), lambda _: (), lambda report, _: report)

    assert [(one.verdict.value, one.code) for one in found.findings] == [("skip", "nic.no-perftest")]


def nic(name, *bridges):
    path = tuple(Port(bus_id=bridge) for bridge in bridges)
    return Nic(ObservedNic(name=name, path=path), RdmaDevice(name=name), RdmaPort(number=1))


def test_pairs_of_one_round_share_no_card_and_no_link():
    cards = [nic("a", "root0", "s0"), nic("b", "root0", "s0"), nic("c", "root1"), nic("d", "root2")]
    made = [[(one.seen.name, other.seen.name) for one, other in pairs] for pairs in rounds(cards)]

    assert made == [[("a", "d")], [("b", "c")], [("a", "b"), ("c", "d")], [("a", "c")], [("b", "d")]]


THROUGH_CARD = """NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB lo:127.0.0.1<0>
NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA
NCCL INFO Channel 00/0 : 0[0] -> 1[1] [receive] via NET/IB/0"""
H100S = (h100(0), h100(1), h100(2))


def ended(monkeypatch, log="", reason="finished"):
    """What a run of two ranks ends with, and the environment that they get."""
    seen = []
    one = MeasuredCollective(operation="all_reduce", size=nccl.BYTES, seconds=(nccl.BYTES / 22e9,), checked=7)
    report = RankReport(rank=0, world_size=2, device="cuda:0", device_name=None, versions={}, measured=(one,))
    ending = collectives.ended(reason, *({"report": report} for _ in range(reason == "finished")), seconds=3.0)

    def launch(options, here, **environment):
        seen.append((options.bus_ids, here, environment))
        return replace(ending, taken=parse(log))

    monkeypatch.setattr("gpucheck.measure.collectives.run.launch", launch)
    card = Nic(CARD, RdmaDevice(name="mlx5_0"), RdmaPort(number=1), Port(bus_id=H100S[1].pci_bus_id))
    return nccl.through(card, H100S, nccl.measured, virtual=False), seen


@pytest.mark.parametrize(
    ("log", "value", "memory", "note"),
    [
        (THROUGH_CARD, 22.0, "gpudirect", ""),
        (THROUGH_CARD.replace("/GDRDMA", ""), 22.0, "host", ""),
        # Of the rank whose GPU is elsewhere.
        (THROUGH_CARD.replace("0[0] -> 1[1] [send]", "1[1] -> 0[0] [send]"), 22.0, "host", ""),
        (THROUGH_CARD.replace("mlx5_0", "mlx5_1"), None, "host", "its log shows mlx5_1, and NET/IB"),
        (THROUGH_CARD.replace("[receive] via NET/IB/0", "via SHM"), None, "host", "shows mlx5_0, and NET/IB, SHM"),
        ("", None, "host", "its log shows no card, and no channel"),
    ],
)
def test_a_rate_of_nccl_is_believed_if_its_log_shows_the_card_alone(monkeypatch, log, value, memory, note):
    row, seen = ended(monkeypatch, log)

    assert (row.value, row.memory) == (value, memory)
    assert row.note.endswith(note)
    ((bus_ids, here, environment),) = seen
    assert (bus_ids, here) == ((H100S[1].pci_bus_id, H100S[0].pci_bus_id), 2)
    assert environment == nccl.SETTINGS | {"NCCL_IB_HCA": "=mlx5_0:1"}


def test_ranks_that_hang_are_no_result(monkeypatch):
    row, _ = ended(monkeypatch, reason="deadline")

    assert (row.value, row.note) == (None, "no end within 3 s")
