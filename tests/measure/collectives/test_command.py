"""``gpucheck collectives``: on one host, on two, and with a rendezvous that is invalid."""

import json
import os
import subprocess
import sys

import pytest

from gpucheck.measure.collectives.values import ALL
from tests.train.conftest import Marked, free_port, wait_until

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck", "collectives"]


def meeting(host: str, port: str, rank: int = 0) -> dict[str, str]:
    """The environment of one of two hosts."""
    return os.environ | {
        "GROUP_WORLD_SIZE": "2", "GROUP_RANK": str(rank), "MASTER_ADDR": host, "MASTER_PORT": port,
    }  # fmt: skip


def test_two_cpu_ranks_run_every_collective_exactly():
    done = subprocess.run([*GPUCHECK, "--sizes", "4K", "--format", "json"], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["backend"], report["ranks"]) == ("gpucheck.collectives/1", "gloo", 2)
    assert [(r["operation"], r["wrong"], r["checked"]) for r in report["results"]] == [(name, 0, 7) for name in ALL]
    assert all(r["busbw_gb_s"] > 0 for r in report["results"])


@pytest.mark.more
def test_two_hosts_run_collectives_together():
    """Two launches with their own node rank, over loopback addresses: what two hosts do over the network."""
    port = str(free_port())
    command = [*GPUCHECK, "--sizes", "4K", "--only", "all_reduce", "--ranks", "1", "--format", "json"]
    hosts = [
        subprocess.Popen(
            command,
            env=meeting("127.0.0.1", port, rank=number),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    answers = [host.communicate(timeout=300) for host in hosts]

    assert [host.returncode for host in hosts] == [0, 0], answers
    reports = [json.loads(out) for out, _ in answers]
    assert [(r["ranks"], r["nodes"], r["verdict"]) for r in reports] == [(2, 2, "pass")] * 2
    assert reports[0]["results"] == reports[1]["results"]


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("no-such-host.invalid", "29500", "no-such-host.invalid has no address here"),
        ("10.0.0.1", "", "MASTER_PORT '': expected a number"),
        ("192.0.2.1", "29500", "not one of its own"),
    ],
)
def test_invalid_rendezvous_is_wrong_usage_before_any_rank_starts(host, port, words):
    done = subprocess.run(GPUCHECK, env=meeting(host, port), capture_output=True, text=True, timeout=60)

    assert done.returncode == 64
    assert words in done.stderr


def test_ranks_that_wait_for_another_host_end_with_a_parent_that_is_killed(tmp_path):
    with Marked() as marked:
        environment = meeting("127.0.0.1", str(free_port())) | marked.environment | {"TMPDIR": str(tmp_path)}
        parent = subprocess.Popen(GPUCHECK, env=environment)
        wait_until(lambda: len(marked.running()) > 1)
        parent.kill()
        parent.wait(10)

        wait_until(lambda: not marked.running())
