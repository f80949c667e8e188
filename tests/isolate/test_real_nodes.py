"""Real nodes: sshd, torch's gloo ranks and the kernel's traffic shaper, in network namespaces of this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.isolate.nodes import nodes, run, shape

NEEDED = ("ip", "tc", "ssh", "ssh-keygen", "/usr/sbin/sshd")
pytestmark = [
    pytest.mark.more_labs,
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason="needs root, iproute2, OpenSSH"),
]


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with nodes(tmp_path_factory.mktemp("nodes"), 4) as made:
        yield made


def isolate(inventory: Path, *arguments: str) -> dict[str, Any]:
    remote = str(Path(sys.executable).with_name("gpucheck"))
    command = [remote, "isolate", "--inventory", str(inventory), "--remote", remote, "--sizes", "8K,4M", *arguments]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def bad(found: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {one["name"]: (one["verdict"], one["cause"]) for one in found["nodes"] if one["verdict"] != "pass"}


def left(seconds: float = 20.0) -> str:
    """Processes of ranks on the nodes; sshd takes a moment to see that its client has ended."""
    until = time.monotonic() + seconds
    while (found := _left()) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def _left() -> str:
    pids = [pid for at in range(4) for pid in run("ip", "netns", "pids", f"gpc{at}").split()]
    names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids if Path(f"/proc/{pid}").exists()]
    return "".join(name for name in names if "collectives" in name)


def test_equal_nodes_pass(inventory):
    found = isolate(inventory)
    # On a busy machine a pair can be slow once, which is said and accuses nobody.
    assert bad(found) == {}, found["results"]
    assert found["verdict"] in ("pass", "warn")
    # What a shaped link of 200 Mbit/s carries.
    assert 0.02 < found["reference_gb_s"] < 0.026
    assert not left()


def test_a_node_behind_a_slow_link_is_named(inventory):
    shape("gpc2", "150mbit")
    try:
        found = isolate(inventory)
    finally:
        shape("gpc2", "200mbit")
    assert bad(found) == {"gpc2": ("fail", "node-slow")}, found["results"]


def test_a_node_whose_ranks_stand_still_is_named_and_left_clean(inventory):
    stop = threading.Event()

    def freeze() -> None:
        while not stop.wait(0.3):
            for pid in run("ip", "netns", "pids", "gpc1").split():
                with suppress(OSError):  # it ended meanwhile
                    if "collectives" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                        os.kill(int(pid), signal.SIGSTOP)

    freezer = threading.Thread(target=freeze)
    freezer.start()
    try:
        found = isolate(inventory, "--timeout", "10")
    finally:
        stop.set()
        freezer.join()
    # A busy machine slows other pairs down, too: then there may be doubt, but nobody else is accused.
    assert "gpc1" in bad(found), found["results"]
    assert {name: cause for name, (verdict, cause) in bad(found).items() if verdict == "fail"} in (
        {"gpc1": "node-hangs"},
        {},
    )
    assert not left()
