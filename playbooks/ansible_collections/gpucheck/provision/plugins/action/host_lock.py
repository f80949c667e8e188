"""Identify this run, wait for another one, and detect whether an earlier run of this controller has died."""

import getpass
import hashlib
import os
import time
from datetime import datetime, timezone
from pathlib import Path

from ansible import context
from ansible.plugins.action import ActionBase

from ..plugin_utils import node_result

POLL_S, FOLDER = 5, "/var/lib/gpucheck"
BOOT_ID, PROCESSES = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def started(pid):
    """When a process was started, in ticks since boot; "" where there is none, None where that cannot be seen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return "" if Path("/proc/self/stat").exists() else None
    except OSError:
        return None


def place():
    """What makes a process number unique: the boot of the kernel and the namespace; "" where that cannot be seen."""
    try:
        return f"{BOOT_ID.read_text(encoding='ascii').strip()} {PROCESSES.readlink()}"
    except OSError:
        return ""


def this_run(playbook):
    """Return the run of this process: every worker is a child of ansible-playbook, and all return the same run."""
    pid = os.getppid()
    ticks, where = started(pid), place()
    words = " ".join([os.uname().nodename, where, str(pid), str(ticks)])
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {
        "id": hashlib.sha256(words.encode()).hexdigest(),
        "controller": os.uname().nodename,
        "user": user,
        "pid": pid,
        "ticks": ticks or "",
        "place": where,
        "started": now,
        "playbook": playbook,
    }


def is_dead(run):
    if not run.get("place") or run["place"] != place() or not run.get("ticks"):
        return False
    seen = started(run["pid"])
    return seen is not None and seen != run["ticks"]


def refusal(host, holder, waited, lease):
    who = "{playbook} by {user} on {controller} (process {pid}), started {started}".format(**holder)
    waits = f" after {waited} s of waiting" if waited else ""
    return (
        f"{host}: another run is changing this host{waits}: {who}. Nothing was changed. Run again when it has ended, "
        f"or set host_lock_timeout_s to wait for it. The lock of a killed run expires {lease} s after its last step."
    )


class ActionModule(ActionBase):
    """The module takes the lease; this waits for it."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        playbooks = context.CLIARGS.get("args") or ("a playbook",)
        arguments["run"] = this_run(Path(playbooks[0]).name)
        timeout, begun = int(arguments.get("timeout_s", 0)), time.monotonic()
        host = task_vars["inventory_hostname"]
        while True:
            answer = self._execute_module("gpucheck.provision.host_lock", module_args=arguments, task_vars=task_vars)
            answer = node_result.received(self, answer, host)
            holder = answer.get("holder")
            if answer.get("failed"):
                return {**result, **answer}
            if not holder:
                # Part of the environment of what follows, on the controller too, so not as the host returned it.
                return {**result, **answer, "run": f"{arguments['run']['id']} {arguments.get('folder', FOLDER)}"}
            if is_dead(holder) and arguments.get("dead") != holder["id"]:
                arguments["dead"] = holder["id"]
                continue
            left = timeout - (time.monotonic() - begun)
            if left <= 0:
                words = refusal(host, holder, timeout, arguments.get("lease_s", 3600))
                return {**result, "failed": True, "msg": words, "held": True}
            time.sleep(min(POLL_S, left))
