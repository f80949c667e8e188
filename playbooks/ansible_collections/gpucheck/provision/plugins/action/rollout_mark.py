"""Where each host is in a rollout: begun, done or waiting. No further host begins once too many have failed.

The marks are files in the directory that Ansible creates for a run and removes after it: every task runs in a process
of its own, and reading hostvars instead would cost the square of the fleet.
"""

from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase

from ..plugin_utils import node_result

# first: hosts of a first batch (a canary). The limits are of the hosts that began before.
ARGUMENTS = {
    "state": {"type": "str", "choices": ["begun", "done", "waiting"], "required": True},
    "first": {"type": "list", "elements": "str", "default": []},
    "max_failing_percent": {"type": "int", "default": 100},
    "max_failing_hosts": {"type": "int", "default": 10},
}
MARKS = ("begun", "done", "waiting")
AGAIN = "Repair them, then run again; completed hosts are not changed again."


def marked(folder):
    return {mark: {path.name for path in (folder / mark).glob("*")} for mark in MARKS}


def stop(marks, active, first, percent, most):
    """Why no further host may begin, "" if it may.

    active: hosts of this batch, which are at work at the same time; which of them failed first is chance.
    first: hosts of a first batch that must all be proven before others begin, else empty.
    """
    unproven = sorted(set(first) - marks["done"] - marks["waiting"] - set(active))
    if unproven:
        return f"the first batch did not pass ({', '.join(unproven)}). {AGAIN}"
    if first and not set(first) & (marks["done"] | set(active)):
        return f"the first batch proved nothing, it waits for jobs ({', '.join(sorted(first))}). Run again later."
    begun = marks["begun"] - marks["waiting"] - set(active)
    failed = sorted(begun - marks["done"])
    limits = []
    if len(failed) * 100 > percent * len(begun):
        limits.append(f"max_failing_percent={percent}")
    if len(failed) > most:
        limits.append(f"max_failing_hosts={most}")
    if not limits:
        return ""
    words = f"{len(failed)} of {len(begun)} hosts failed before ({', '.join(failed)})"
    return f"{words}, more than {' and '.join(limits)} allows. {AGAIN}"


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Mark the host; with ``begun`` only where the hosts before stand well enough."""
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        state, host = arguments["state"], task_vars["inventory_hostname"]
        folder = Path(constants.DEFAULT_LOCAL_TMP) / "rollout"
        result["changed"] = False
        limits = (arguments["first"], arguments["max_failing_percent"], arguments["max_failing_hosts"])
        why = stop(marked(folder), task_vars["ansible_play_batch"], *limits) if state == "begun" else ""
        if why:
            return {**result, "failed": True, "msg": f"{host}: not started, nothing was changed: {why}"}
        (folder / state).mkdir(parents=True, exist_ok=True)
        (folder / state / node_result.file_name(host)).touch()
        return {**result, "rollout": state}
