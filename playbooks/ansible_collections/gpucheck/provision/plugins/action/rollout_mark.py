"""Where each host is in a rollout: begun, done. No further host begins once too many have failed.

The marks are files in the directory that Ansible creates for a run and removes after it: every task runs in a process
of its own, and reading hostvars instead would cost the square of the fleet.
"""

from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result


def failed_before(folder, active):
    """Hosts that began and never came to their end, but for those of the same batch that are still at work. Ordered."""
    begun, done = ({path.name for path in (folder / mark).glob("*")} for mark in ("begun", "done"))
    return sorted(begun - done - set(active))


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Mark the host; with ``begun`` only where the fleet stands well enough."""
        result = super().run(tmp, task_vars)
        arguments = node_result.arguments(self)
        state, share = arguments["state"], arguments["max_failing_percent"]
        host, fleet = task_vars["inventory_hostname"], task_vars["groups"].get("gpu", [])
        folder = Path(constants.DEFAULT_LOCAL_TMP) / "rollout"
        result["changed"] = False
        failed = failed_before(folder, task_vars["ansible_play_batch"]) if state == "begun" else []
        if len(failed) * 100 > share * len(fleet):
            words = (
                f"{host}: not started, nothing was changed: {len(failed)} of {len(fleet)} hosts failed before "
                f"({', '.join(failed)}), more than max_failing_percent={share} allows. Repair them, then run again; "
                "completed hosts are not changed again."
            )
            return {**result, "failed": True, "msg": words}
        (folder / state).mkdir(parents=True, exist_ok=True)
        (folder / state / node_result.file_name(host)).touch()
        return {**result, "rollout": state}
