"""What a run did to each host: a table at its end, and reports/provision.json for programs.

Written also when Ansible itself cuts the run short, and before each play, so that a controller that dies leaves the
state of that moment.
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path

from ansible.plugins.callback import CallbackBase

from ..plugin_utils import files, node_result

DOCUMENTATION = """
name: host_summary
type: notification
short_description: A table and a JSON file of what a run did to each host
description:
  - Prints one line a host when a playbook that changes hosts ends, and writes provision.json into reports_dir.
  - Prints nothing for other playbooks.
author: gpucheck
"""

SCHEMA = "gpucheck.provision/1"
PLAYBOOKS = ("provision", "rollback", "deprovision")
BAD = ("unreachable", "refused", "stopped", "failed")
# No failure, but the reason is worth a line as well.
WAITING = "waiting"
REPORTED = (*BAD, WAITING)
# What ssh calls a peer that it reaches through another host only (ProxyJump, ProxyCommand).
JUMP_HOST = "UNKNOWN port 65535"
OF_JUMP_HOST = (
    "The connection ended at the jump host (ansible_ssh_common_args): log in there with ssh -v for its reason."
)
# Of more hosts than these the table leaves out those that nothing happened to.
FEW = 20


SETS = ("set_fact", "ansible.builtin.set_fact")


def plain(value):
    """Return the mapping without Ansible's own string and list types; empty if it is not a mapping."""
    found = json.loads(json.dumps(value, default=str))
    return found if isinstance(found, dict) else {}


def sentences(differences):
    """Return sentences by role, each on one line. Input from a host is untrusted: other values are omitted."""
    rows = {role: words if isinstance(words, list) else [] for role, words in plain(differences).items()}
    return {node_result.one_line(role): [node_result.one_line(word) for word in words] for role, words in rows.items()}


class Host:
    """What is known of one host."""

    def __init__(self):
        self.outcome = {}
        self.plan = {}
        self.differences = {}
        self.changed_tasks = []
        self.reboots = 0
        self.seconds = 0.0
        self.lost = ""
        self.failed = ""
        self.done = False
        self.drained = ""

    def state(self, check_mode):
        if self.outcome:
            return self.outcome["state"]
        if self.lost or self.failed:
            return "unreachable" if self.lost else "failed"
        if check_mode:
            return "would change" if self.differences else "unchanged"
        if self.differences and not self.done:
            return "in progress"
        return "changed" if self.differences else "unchanged"

    def reason(self):
        words = " ".join(str(self.outcome.get("reason", "") or self.lost or self.failed).split())
        return node_result.one_line(f"{words} {OF_JUMP_HOST}" if JUMP_HOST in words else words)

    def group(self):
        return node_result.one_line(self.plan.get("group") or "-", 80)

    def document(self, check_mode):
        stack = plain(self.plan.get("stack"))
        return {
            "state": self.state(check_mode),
            "group": self.plan.get("group"),
            "plan": {part: stack.get(part) for part in sorted(stack) if part != "reasons"},
            "changes": [f"{role}: {word}" for role, words in self.differences.items() for word in words],
            "tasks_changed": self.changed_tasks,
            "reboots": self.reboots,
            "seconds": round(self.seconds, 1),
            "failure": (self.reason() or None) if self.state(check_mode) != WAITING else None,
            "drained_before": self.drained or None,
            "waiting": self.reason() if self.state(check_mode) == WAITING else None,
        }


class CallbackModule(CallbackBase):
    """Collects, then writes."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "host_summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.hosts = {}
        self.begun = {}
        self.kind = ""
        self.folder = ""
        self.check_mode = False
        self.started = datetime.now(timezone.utc)
        self.clock = time.monotonic()

    # Events from Ansible

    def v2_playbook_on_start(self, playbook):
        self.kind = Path(playbook._file_name).stem

    def v2_playbook_on_play_start(self, play):
        variables = play.get_variable_manager().extra_vars
        self.folder = variables.get("reports_dir", self.folder) or self.folder
        self.check_mode = bool(play.check_mode)
        self.write()

    def v2_runner_on_start(self, host, task):
        self.begun[(host.get_name(), task._uuid)] = time.monotonic()

    def v2_runner_on_ok(self, result):
        row = self.ended(result)
        if row is None:
            return
        answer = result._result
        # A host without changes reports its facts only.
        row.plan = row.plan or plain(answer.get("recorded_set"))
        if result._task.action == "gpucheck.provision.rollout_mark" and answer.get("rollout") == "done":
            row.done = True
        if result._task.action in SETS:
            self.take_facts(row, answer.get("ansible_facts") or {})
        if answer.get("unreachable"):
            return
        if answer.get("changed") and not self.check_mode:
            row.changed_tasks.append((result._task.name or result._task.get_name()).strip())
            row.reboots += bool(answer.get("rebooted"))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        row = self.ended(result)
        if row is not None and not ignore_errors:
            row.failed = str(result._result.get("msg", "failed"))

    def v2_runner_on_unreachable(self, result):
        row = self.ended(result)
        if row is not None:
            row.lost = "unreachable: " + str(result._result.get("msg", ""))

    def v2_playbook_on_stats(self, stats):  # noqa: ARG002 - Ansible's signature
        """The end, also of a run that Ansible cut short."""
        if self.kind in PLAYBOOKS and self.hosts:
            self.write()
            self._display.display("\n" + self.table())

    # What is made of it

    def ended(self, result):
        """The host's row with the task's seconds added; None for the controller."""
        name = result._host.get_name()
        begun = self.begun.pop((name, result._task._uuid), None)
        if name == "localhost":
            return None
        row = self.hosts.setdefault(name, Host())
        row.seconds += time.monotonic() - begun if begun is not None else 0.0
        return row

    def take_facts(self, row, facts):
        row.plan = plain(facts.get("host_plan")) or row.plan
        if "host_state" in facts:
            # A host that is compared again during the run, under another kernel, still counts as changed.
            row.differences = sentences(plain(facts["host_state"]).get("differences")) or row.differences
        row.drained = node_result.one_line(facts.get("drain_before") or row.drained)
        if "host_outcome" in facts:
            row.outcome = plain(facts["host_outcome"])
            row.lost = row.failed = ""

    def write(self):
        if self.kind not in PLAYBOOKS or self.check_mode or not self.hosts or not self.folder:
            return
        hosts = {name: row.document(self.check_mode) for name, row in sorted(self.hosts.items())}
        states = [host["state"] for host in hosts.values()]
        document = {
            "schema": SCHEMA,
            "playbook": self.kind,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.clock, 1),
            "counts": {state: states.count(state) for state in sorted(set(states))},
            "hosts": hosts,
        }
        files.write(Path(self.folder) / "provision.json", json.dumps(document, indent=2) + "\n")

    def table(self):
        rows = sorted(self.hosts.items(), key=lambda pair: (pair[1].state(self.check_mode) in REPORTED, pair[0]))
        # Changes that check mode skipped are in the dry run above.
        counted = () if self.check_mode else ("reboots", "seconds")
        head = ("host", "state", "changes", *counted, "group")
        lines = [head]
        shown = [pair for pair in rows if len(rows) <= FEW or pair[1].state(self.check_mode) != "unchanged"]
        for name, row in shown:
            count = sum(len(words) for words in row.differences.values())
            took = (str(row.reboots), f"{row.seconds:.0f}") if counted else ()
            lines.append((name, row.state(self.check_mode), str(count), *took, row.group()))
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        reasons = {}
        for name, row in rows:
            if row.state(self.check_mode) in REPORTED:
                reasons.setdefault(row.reason().removeprefix(f"{name}: "), []).append(name)
        for reason, names in reasons.items():
            more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
            text.append(f"  {', '.join(names[:FEW])}{more}: {reason}")
        text += [f"  {name}: stays drained, was drained before: {row.drained}" for name, row in rows if row.drained]
        states = [row.state(self.check_mode) for _, row in rows]
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        where = f"; {self.folder}/provision.json" if self.folder and not self.check_mode else ""
        return "\n".join([*text, f"{len(rows)} hosts: {counts}{where}"])
