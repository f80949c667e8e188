"""Run other health checkers on simulated machines and write docs/scoreboard.md: python bench/scoreboard/run.py WORK

WORK is a folder outside the checkout for environments and results. --built sichek=DIR: a folder with the built program
and its source. --mock DIR: libnvidia-ml.so.1, config.yaml and nvml-mock-ctl of NVIDIA/k8s-test-infra. A peer gets a
time limit, no network, a file system that it cannot change, small private folders, and a limited number of processes,
which end with it.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import yaml
from page import page

from gpucheck.printable import one_line

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GPUCHECK = Path(sys.executable).parent / "gpucheck"
LIMIT_S, GRACE_S, MOST_BYTES, MOST_PROCESSES = 300, 60, 1_000_000, 500
TIMED_OUT = (124, 137)
PIDS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")  # of cgroup v1 and v2
COVERED = ("/dev/shm", "/run", "/var/log")  # noqa: S108 - a peer gets empty ones
VARIES = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\d{4}-\d\d-\d\d[T ]\S+|\d\d:\d\d:\d\d\S*|\bin \d+\.\d+ ?s\b|\b\d+\.\d+ ?(ms|s)\b"
)
# What a peer may write to is small, in memory, and gone with it; all else is read-only, the cache of machines excepted.
INSIDE = """set -e
mount --bind "$CACHE" "$CACHE"
mount -o remount,bind,ro /
mount -t tmpfs -o size=64m tmpfs "$CELL"
if [ -n "$WRITABLE" ]; then
  mkdir "$CELL/upper" "$CELL/lower"
  mount -t overlay -o "lowerdir=$WRITABLE,upperdir=$CELL/upper,workdir=$CELL/lower" overlay "$WRITABLE"
fi
for folder in $COVERED; do mount -t tmpfs -o size=64m tmpfs "$folder"; done
export HOME="$CELL" TMPDIR="$CELL"
ulimit -f 65536
cd "$CELL"
eval "$FILES"
exec "$@"
"""


def environment(work, peer):
    """Make the peer's environment once; return its folder of programs, or why there is none."""
    folder = work / "peers" / peer["name"]
    if peer["name"] == "gpucheck":
        return folder, None
    programs = folder / "bin"
    stamp = folder / "recipe.json"
    recipe = json.dumps([peer.get("install"), peer.get("target")])
    if stamp.exists() and stamp.read_text() == recipe:
        return folder, None
    if "install" not in peer:
        return folder, None if programs.exists() else peer["build"]
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(programs / "python")]
    commands = [[sys.executable, "-m", "uv", "venv", "-q", "-p", sys.executable, str(folder)], [*pip, *peer["install"]]]
    if "target" in peer:
        target = peer["target"]
        platform = ["--python-version", target["python"], "--python-platform", target["platform"]]
        commands.append([*pip, *platform, "--no-deps", "--target", str(folder / "target"), target["package"]])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            return folder, f"not installed: {one_line(done.stderr.strip().splitlines()[-1], 200)}"
    stamp.write_text(recipe)
    return folder, None


def run(work, peer, folder, number, *, machine, faults, gpus, mock=None):
    """Run all commands of a peer on one machine; return status and output."""
    cell = work / "cells" / f"{number}"
    cell.mkdir(parents=True, exist_ok=True)
    extra = injected(*mock, work / "cells" / f"{number}.yaml") if mock else {}
    places = {"gpucheck": GPUCHECK, "gpus": gpus, "work": cell, "here": HERE, "target": folder / "target"}
    places["source"] = folder / "source"
    line = "; ".join(f"{one.format(**places)} || rc=$?" for one in peer["run"])
    command = ["timeout", "-k", "2", str(peer.get("timeout_s", LIMIT_S)), "bash", "-c", f"rc=0; {line}; exit $rc"]
    if mock is None:
        chosen = [word for fault in faults for word in ("--fault", fault)]
        command = [str(GPUCHECK), "simulate", machine, *chosen, "--mount", "--", *command]
    files = "".join(f"printf %s {shlex.quote(text)} > {name};" for name, text in peer.get("files", {}).items())
    inside = ["unshare", "-m", "-p", "-n", "-f", "--kill-child", "--mount-proc", "sh", "-c", INSIDE, "cell", *command]
    variables = {
        **{name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ},
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CACHE": str(work / "cache"),
        "CELL": str(cell),
        "COVERED": " ".join(COVERED),
        "WRITABLE": peer.get("writable", ""),
        "XDG_CACHE_HOME": str(work / "cache"),
        "FILES": files,
        "NO_COLOR": "1",
        "COLUMNS": "200",
        **extra,
    }
    group = few_processes(f"{os.getpid()}-{number}")
    enter = f"echo $BASHPID > {group}/cgroup.procs; " if group else ""
    shell = f"({enter}exec {shlex.join(inside)}) 2>&1 < /dev/null | head -c {MOST_BYTES}"
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", shell], env=variables, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            out, _ = process.communicate(timeout=peer.get("timeout_s", LIMIT_S) + GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
            process.returncode = 124
    if group:
        with suppress(OSError):
            group.rmdir()
    return process.returncode, out.decode(errors="replace")


def few_processes(name):
    """A control group for at most MOST_PROCESSES; None where this host lets none be made."""
    for top in PIDS:
        group = Path(top, f"gpucheck-board-{name}")
        with suppress(OSError):
            group.mkdir()
            (group / "pids.max").write_text(f"{MOST_PROCESSES}\n")
            return group
    return None


def injected(mock, row, overrides):
    """The environment that shows NVIDIA's mock NVML with the fault of this row."""
    overrides.unlink(missing_ok=True)
    found = {"LD_LIBRARY_PATH": str(mock), "MOCK_NVML_CONFIG": str(mock / "config.yaml")}
    if row is None:
        return found
    told = [str(mock / "nvml-mock-ctl"), "--file", str(overrides), "--config", str(mock / "config.yaml")]
    subprocess.run([*told, *shlex.split(row["fault"])], check=True, capture_output=True)
    return found | {"MOCK_NVML_OVERRIDES": str(overrides)}


def lines(output):
    """The lines of an output without what differs from run to run, and without those that state the simulated fault."""
    kept = (line for line in output.splitlines() if "SIMULATED" not in line and not line.startswith("gpucheck: "))
    return [VARIES.sub("", line).strip() for line in kept]


def complains(peer, status, output, healthy):
    if peer.get("baseline") and healthy is not None:
        found, known = (Counter(re.findall(peer["alarm"], text, re.M)) for text in (output, healthy))
        return bool(found - known)
    return bool(re.search(peer["alarm"], output, re.M)) if "alarm" in peer else status not in (0, *TIMED_OUT)


def outcome(peer, row, status, output, healthy):
    """One word for a fault: named, weak, silent, value, crashed, hung."""
    known = set(lines(healthy))
    new = "\n".join(line for line in lines(output) if line not in known)
    if status in TIMED_OUT:
        return "hung"
    if "Traceback (most recent call last)" in output and status and "Traceback (most recent" not in healthy:
        return "crashed"
    gpu = row.get("gpu")
    number, _, bus = (gpu or "").partition("|")
    who = rf"(gpu|gpus|gpu\(s\)|index|device|nvidia)\W{{0,12}}{number}\b|^\W*{number}\b|{bus}" if gpu else ""
    says = re.search(row["names"], new, re.I) and re.search(who, new, re.I | re.M)
    if not peer.get("viewer") and complains(peer, status, output, healthy):
        return "named" if says else "weak"
    if peer.get("viewer") and "alarm" in peer and complains(peer, status, output, healthy):
        return "named" if says else "weak"
    shown = re.search(row["names"], new, re.I)
    return "value" if shown or (peer.get("viewer") and new and gpu and re.search(who, new, re.I | re.M)) else "silent"


def well(peer, status, output):
    """One word for a machine that is as it should be."""
    if status in TIMED_OUT:
        return "hung"
    if "Traceback (most recent call last)" in output and status:
        return "crashed"
    if peer.get("baseline"):
        return "not compared"
    return "false alarm" if complains(peer, status, output, None) else "silent"


def jobs_of(peer, table, mock):
    """Every cell of a peer: the name of its file, and what ``run`` needs; None where its recipe has no such machine."""
    for kind in ("faults", "healthy"):
        for index, row in enumerate(table[kind]):
            machine = row.get("machine", table["machine"])
            faults = [row["fault"]] if kind == "faults" else row.get("faults", [])
            # The recipe of one machine states how many GPUs it has.
            there = "only" not in peer or (machine, row.get("gpus", table["gpus"])) == (peer["only"], table["gpus"])
            yield (
                f"{kind}-{index}",
                {"machine": machine, "faults": faults, "gpus": row.get("gpus", table["gpus"])} if there else None,
            )
    for index, row in enumerate([None, *table["foreign"]] if mock and "only" not in peer else ()):
        yield f"foreign-{index}", {"machine": "", "faults": (), "gpus": 8, "mock": (mock, row)}


def run_all(work, peers, mock, jobs):
    """Run every cell, and keep its status and output in a file; return why a peer could not be run, by name."""
    table = yaml.safe_load((HERE / "machines.yml").read_text())
    (work / "cache").mkdir(parents=True, exist_ok=True)
    missing, tasks = {}, []
    for peer in peers:
        folder, missing[peer["name"]] = environment(work, peer)
        if missing[peer["name"]] is None:
            tasks += [(peer, folder, *job) for job in jobs_of(peer, table, mock)]

    def do(number):
        peer, folder, name, arguments = tasks[number]
        if arguments is not None:
            status, output = run(work, peer, folder, number, **arguments)
            raw = work / "output" / peer["name"] / f"{name}.txt"
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.write_text(f"status {status}\n{output}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(do, range(len(tasks))))
    return missing


def judged(work, peers, missing):
    """Peer -> kind -> row -> outcome, from the kept outputs."""
    table = yaml.safe_load((HERE / "machines.yml").read_text())
    results = {}
    for peer in peers:
        folder = work / "output" / peer["name"]
        own = {"missing": missing.get(peer["name"]), "faults": {}, "healthy": {}, "foreign": {}}
        results[peer["name"]] = own
        kept = {path.stem: _kept(path) for path in folder.glob("*.txt")}
        if not kept:
            own["missing"] = own["missing"] or "not run"
        for kind in ("faults", "healthy", "foreign"):
            base_status, base = kept.get("foreign-0" if kind == "foreign" else "healthy-0", (0, ""))
            for index, row in enumerate(table[kind]):
                key = row.get("fault") or row["machine"] + (" with six GPUs hidden" if row.get("faults") else "")
                found = kept.get(f"{kind}-{index + (kind == 'foreign')}")
                if found is None:
                    if kind != "foreign" and kept:
                        own[kind][key] = "no recipe"
                    continue
                # The mock is no whole machine, it has no device files: only what comes with the fault counts.
                judge = {**peer, "baseline": True} if kind == "foreign" and "alarm" in peer else peer
                word = well(peer, *found) if kind == "healthy" else outcome(judge, row, *found, base)
                unseen = peer.get("blind", {}).keys() & {kind, key.partition(":")[0]}
                # A fault cannot be seen where the checker does not end without it either.
                own[kind][key] = (
                    "not observable"
                    if (word == "silent" and unseen)
                    or (word == "hung" and kind != "healthy" and base_status in TIMED_OUT)
                    else word
                )
    return results


def _kept(path):
    head, _, output = path.read_text().partition("\n")
    return int(head.split()[1]), output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--peers", help="names, separated by commas; all by default; an empty word runs none")
    parser.add_argument("--built", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--mock", type=Path, help="folder of NVIDIA's mock NVML and its injector")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "scoreboard.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: each peer gets a file system that it cannot change")
    work = options.work.resolve()
    if covered := [folder for folder in COVERED if work.is_relative_to(folder)]:
        parser.error(f"WORK must not be below {covered[0]}: each peer gets an empty one")
    peers = yaml.safe_load((HERE / "peers.yml").read_text())
    wanted = [peer["name"] for peer in peers] if options.peers is None else options.peers.split(",")
    for one in options.built:
        name, _, source = one.partition("=")
        (work / "peers" / name / "bin").mkdir(parents=True, exist_ok=True)
        for made, target in ((Path(source, name), f"bin/{name}"), (Path(source, "source"), "source")):
            link = work / "peers" / name / target
            link.unlink(missing_ok=True)
            link.symlink_to(made.resolve())
    missing = run_all(work, [peer for peer in peers if peer["name"] in wanted], options.mock, options.jobs)
    stored = work / "results.json"
    before = json.loads(stored.read_text()) if stored.exists() else {}
    kept = {name: one["missing"] for name, one in before.items() if one["missing"] not in (None, "not run")}
    results = judged(work, peers, kept | missing)
    stored.write_text(json.dumps(results, indent=1))
    changed = [
        f"{name} {key}"
        for name, one in results.items()
        for kind in ("faults", "healthy", "foreign")
        for key, word in one[kind].items()
        if before.get(name, {}).get(kind, {}).get(key, word) != word
    ]
    print("differs from the last results:", ", ".join(changed) or "nothing")
    options.page.write_text(page(results, peers, time.strftime("%Y-%m-%d")))


if __name__ == "__main__":
    main()
