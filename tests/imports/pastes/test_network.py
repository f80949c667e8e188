"""What users paste about network cards: each text has one meaning, and what is by design accuses nobody."""

import pytest

from gpucheck.model import Verdict
from tests.imports.pastes.reading import accused, diagnosed, keys

# A line of NCCL or perftest -> its meaning and the cause that is named, None without one.
LINES = {
    "NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_LOC_PROT_ERR(4) opcode=0 vendor_err=81": (
        "nccl-log.ib-protection",
        "rdma-unavailable",
    ),
    "NET/IB : Got completion from peer 10.0.0.1<4> with error 12, opcode 0, len 0, vendor err 129": (
        "nccl-log.ib-retry",
        None,
    ),
    "NET/IB : Got completion from peer 10.0.0.1<4> with status=5 opcode=0 len=0 vendor err 249": (
        "nccl-log.ib-flushed",
        None,
    ),
    "NET/IB : Got completion from peer 10.0.0.1<4> with status=13 opcode=0 len=0 vendor err 135": (
        "nccl-log.ib-receiver",
        None,
    ),
    "NET/IB : Got completion from peer 10.0.0.1<4> with status=10 opcode=0 len=0 vendor err 136": (
        "nccl-log.ib-refused",
        None,
    ),
    "Call to ibv_modify_qp failed with 110 Connection timed out": ("nccl-log.ib-route", "nic-address"),
    "Call to ibv_modify_qp failed with error Invalid argument": ("nccl-log.ib-route", "nic-address"),
    "Call to ibv_modify_qp failed with 19 No such device": ("nccl-log.ib-connect", None),
    "NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps": ("nccl-log.ib-speed", "nic-rate"),
    "NET/IB : mlx5_0:1 speed change detected: 200000 -> 400000 Mbps": ("nccl-log.ib-speed-changed", None),
    "NET/IB : Marking device 3 as permanently failed": ("nccl-log.ib-device-lost", None),
    "NET/IB : No device found.": ("nccl-log.plugins", None),
}
PERFTEST = {
    "Failed status 12: wr_id 0 syndrom 0x81": ("perftest.no-answer", None),
    "Couldn't allocate MR with error=12": ("perftest.pinned-limit", "memlock-too-small"),
    "Failed to modify QP 204 to RTR": ("perftest.address", "nic-address"),
    "Port number 1 state is Down": ("perftest.port", "nic-down"),
    "Did not detect devices": ("perftest.device", "rdma-unavailable"),
    "IB device mlx5_9 not found": ("perftest.name", None),
    "Did not get Message for 120 Seconds": ("perftest.peer", None),
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]": ("perftest.no-row", None),
}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [*((f"node1:12:34 [0] NCCL WARN {line}", own) for line, own in LINES.items()), *PERFTEST.items()],
    ids=[*LINES, *PERFTEST],
)
def test_a_line_has_its_meaning_and_cause(text, meaning):
    key, cause = meaning

    assert keys(text) == [key]
    named = {one.cause for one in diagnosed(text).findings if one.check == key.partition(".")[0]}
    assert named == {cause} or (cause is None and not named)


def test_a_process_that_sees_no_device_does_not_accuse_the_port():
    found = diagnosed("Did not detect devices\nIf device exists, check if driver is up\n")

    assert found.verdict is Verdict.UNKNOWN
    assert accused(found) == set()
    assert not found.unread
