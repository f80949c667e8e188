"""Nodes that are directories: a stand-in for ssh and srun starts the stand-in for gpucheck here, as that node."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SSH = """#!/bin/sh
# The last word is the script, the one before it the node.
for word; do node=$script; script=$word; done
[ -e "$NODES/$node.silent" ] && { echo "ssh: connect to host $node: No route to host" >&2; exit 255; }
# As on another host: nothing but the end of its input tells it that the client has ended.
NODE=$node exec setsid -w sh -c "$script"
"""
SRUN = """#!/bin/sh
[ -e "$NODES/ended" ] && { echo "srun: error: Job/step already completing or completed" >&2; exit 1; }
while :; do case $1 in --nodelist=*) node=${1#--nodelist=};; timeout) break;; esac; shift; done
NODE=$node exec "$@"
"""
SQUEUE = """#!/bin/sh
[ -e "$NODES/ended" ] || echo RUNNING
"""
SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && echo "$3" | tr , '\\n'
"""
GPUCHECK = """#!{python}
import json, os, signal, sys, time
from pathlib import Path

nodes, node = Path(os.environ["NODES"]), os.environ["NODE"]
state = json.loads((nodes / "states.json").read_text()).get(node, "good")
with (nodes / "log").open("a") as log:
    log.write(f"{{sys.argv[1]}} {{node}} {{os.environ.get('NCCL_IB_HCA', '')}}\\n")
if sys.argv[1] == "topo":
    print(json.dumps({{"gpus": [{{"name": "A100" if state == "other" else "H100"}}] * 8}}))
elif sys.argv[1] == "record":
    if state == "silent":
        sys.exit("Error: driver not loaded")
    simulated = ["--simulate", "p100-pcie-x2"]
    os.execv(sys.executable, [sys.executable, "-m", "gpucheck", *sys.argv[1:], *simulated])
elif sys.argv[1] == "verify":
    finding = {{"verdict": "fail", "check": "nvlink-status", "seen": "17 NVLinks active"}}
    gpus = {{"gpus": [{{"index": 0}}]}}
    print(json.dumps({{"verdict": "fail" if state == "sick" else "pass", "topology": gpus,
                      "findings": [finding] * (state == "sick")}}))
else:
    count, rank, port = (os.environ[name] for name in ("GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT"))
    port += os.environ["MASTER_ADDR"]
    here = nodes / "ports"
    here.mkdir(exist_ok=True)
    if state == "dies":
        sys.exit(70)
    (here / f"{{port}}-{{rank}}").write_text(state)
    if state == "port" and not (nodes / "once").exists():
        (nodes / "once").touch()
        sys.exit("Error: MASTER_ADDR a, MASTER_PORT 1: the port is in use: choose another, the same on every host.")
    while len(list(here.glob(f"{{port}}-*"))) < int(count):
        time.sleep(0.01)
    states = [path.read_text() for path in here.glob(f"{{port}}-*")]
    while state == "stops":
        for end in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(end, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
        os.kill(os.getpid(), signal.SIGSTOP)
    while "hangs" in states or "stops" in states:
        time.sleep(0.05)
        if (nodes / "ended").exists():
            sys.exit(143)
    slow = "slow" in states or ("card" in states and os.environ.get("NCCL_IB_HCA", "=mlx5_1") == "=mlx5_1")
    rows = [dict(operation="all_reduce", size_bytes=size, time_us=30.0 if size == 8192 else 1e3,
                 busbw_gb_s=200.0 if slow else 390.0, wrong=int("wrong" in states)) for size in (8192, 134217728)]
    for row in rows:
        row["variant"] = "as is"
    report = json.dumps({blank} | {{"nodes": int(count), "results": rows}})
    if rank == "0":
        print(report[: 40 if "cut" in states else None])
"""


# A report of gpucheck collectives, without results.
BLANK = {
    "schema": "gpucheck.collectives/1", "host": "a", "simulated": False, "started": "", "seconds": 1.0,
    "verdict": "pass", "findings": [], "counts": {}, "backend": "nccl", "kind": "", "ranks": 2, "nodes": 2,
    "devices": [], "versions": {}, "results": [],
}  # fmt: skip


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that sets how nodes behave, by name, and gives the directory with their ``log``."""
    programs = tmp_path / "programs"
    programs.mkdir()
    texts = {"ssh": SSH, "srun": SRUN, "squeue": SQUEUE, "scontrol": SCONTROL}
    for name, text in {**texts, "gpucheck": GPUCHECK.format(python=sys.executable, blank=BLANK)}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    monkeypatch.setenv("NODES", str(nodes))

    def behave(**states: str) -> Path:
        (nodes / "states.json").write_text(json.dumps(states))
        for name, state in states.items():
            if state == "silent":
                (nodes / f"{name}.silent").touch()
        return nodes

    behave()
    return behave
