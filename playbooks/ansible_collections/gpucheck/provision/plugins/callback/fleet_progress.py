"""Ansible's own display for a few hosts; for a fleet, a line of progress every few seconds instead of a line a host.

Where hosts do not wait for each other, a heading would stand above nearly every line: there a line names its step.
Failures, changes of a host's state and messages are shown immediately and completely.
"""

from __future__ import annotations

import re
import textwrap
import time

from ansible import constants
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils import color

from ..plugin_utils import node_result

DOCUMENTATION = """
name: fleet_progress
type: stdout
short_description: The default display, with fewer lines per host for many hosts
description:
  - For up to 20 hosts it equals ansible.builtin.default, but in plays with strategy free a line names host and task.
    For more hosts, a progress line of the current task every few seconds replaces the ok and changed lines of single
    hosts. With -v it equals ansible.builtin.default for any number.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
author: gpucheck
"""

FEW = 20
# Characters of a line from its begin and from its end: a host may return megabytes. With -v everything is shown.
SHOWN = 2000
EVERY_S = 5.0
# The colours that Ansible itself writes, where it does.
COLOUR = re.compile("(\x1b\\[(?:0|[01];3[0-7]|38;5;[0-9]{1,3})m)")
TEXT = ("debug", "ansible.builtin.debug")
# What assert adds to its message.
OF_ASSERT = ("assertion", "evaluated_to")
APART = ("free", "host_pinned", "ansible.builtin.free", "ansible.builtin.host_pinned")


def plain(display):
    """Escape terminal control characters in everything that Ansible prints: much of it is output of a host."""
    written = display.display

    def display_plain(msg, *arguments, **options):
        lines = str(msg).split("\n")
        written("\n".join(map(plain_line, lines if display.verbosity else map(short, lines))), *arguments, **options)

    display.display = display_plain


def short(line):
    """One line without its middle, if it is longer than any line of the playbooks."""
    out = len(line) - 2 * SHOWN
    return f"{line[:SHOWN]} ... {out} characters left out, -v shows them ... {line[-SHOWN:]}" if out > 0 else line


def plain_line(line):
    """One line with Ansible's own colours as its only commands to the terminal."""
    line = line.expandtabs()
    parts = COLOUR.split(line) if color.ANSIBLE_COLOR else [line]
    return "".join(part if number % 2 else node_result.one_line(part, len(part)) for number, part in enumerate(parts))


class CallbackModule(Default):
    """Counts where the default prints."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "fleet_progress"

    def __init__(self):
        super().__init__()
        self.many = self.many_seen = self.apart = False
        self.hosts = set()
        self.ended = {}
        self.spoke = time.monotonic()
        plain(self._display)

    def v2_playbook_on_play_start(self, play):
        inventory = play.get_variable_manager()._inventory
        self.hosts = {host.get_name() for host in inventory.get_hosts(play.hosts)}
        self.many = len(self.hosts) > FEW and not self._display.verbosity
        self.many_seen = self.many_seen or self.many
        self.apart = play.strategy in APART and not self._display.verbosity
        self.ended = {}
        super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task, is_conditional):
        if not self.many:
            super().v2_playbook_on_task_start(task, is_conditional)

    def v2_runner_on_ok(self, result):
        if result._task.action in TEXT and "msg" in result._result and not self._display.verbosity:
            self._display.display(str(result._result["msg"]).rstrip("\n"))
        elif self.many:
            self.count(result)
        elif self.apart:
            self.line(result)
        else:
            super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result):
        if self.many:
            self.count(result)
        else:
            super().v2_runner_on_skipped(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if self.many:
            self.count(result, "failed")
        else:
            super().v2_runner_on_failed(result, ignore_errors)

    def _handle_exception(self, result, use_stderr=False):
        """Omit the lines of the playbook that ansible-core prints above each failure: its result has the message."""
        if self._display.verbosity:
            super()._handle_exception(result, use_stderr=use_stderr)
        else:
            result.pop("exception", None)

    def _dump_results(self, result, *arguments, **options):
        """Print a message as text: YAML doubles its quotes and breaks its lines, also within a command to copy."""
        if self._display.verbosity or not isinstance(result.get("msg"), str):
            return super()._dump_results(result, *arguments, **options)
        shown = super()._dump_results(result, *arguments, **{**options, "serialize": False})
        message = textwrap.indent(str(shown.pop("msg")).rstrip("\n"), " " * 4)
        rest = {
            key: value for key, value in shown.items() if key not in OF_ASSERT and (key, value) != ("changed", False)
        }
        return f"\n{message}{super()._dump_results(rest, *arguments, **options) if rest else ''}"

    def v2_runner_on_unreachable(self, result):
        if self.many:
            self.count(result, "unreachable")
        else:
            super().v2_runner_on_unreachable(result)

    def v2_runner_item_on_ok(self, result):
        if not self.many and not self.apart:
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_skipped(self, result):
        if not self.many:
            super().v2_runner_item_on_skipped(result)

    def v2_playbook_on_include(self, included_file):
        """Omit the list of all hosts in one line: unreadable for a fleet, redundant for one host."""
        if not self.many and not self.apart:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_stats(self, stats):
        """Omit the recap for a fleet: the summary that follows has more details than a line per host."""
        if not self.many_seen:
            super().v2_playbook_on_stats(stats)

    def line(self, result):
        if isinstance(result._task, TaskInclude):
            return
        changed = bool(result._result.get("changed"))
        task = (result._task.name or result._task.get_name()).strip()
        words = f"{'changed' if changed else 'ok'}: [{result._host.get_name()}] {task}"
        self._display.display(words, color=constants.COLOR_CHANGED if changed else constants.COLOR_OK)

    def count(self, result, fate=""):
        """Record that a host has completed the task; print the progress at intervals.

        By the task's name: hosts that do not wait for each other are at different ones.
        """
        host, task = result._host.get_name(), (result._task.name or result._task.get_name()).strip()
        through = self.ended.setdefault(task, set())
        through.add(host)
        if fate:
            words = " ".join(str(result._result.get("msg", "")).split())
            self._display.display(f"{fate}: [{host}] {task}: {words}", color="red")
        elif time.monotonic() - self.spoke >= EVERY_S:
            self.spoke = time.monotonic()
            self._display.display(f"  {task}: {len(through)} of {len(self.hosts)} hosts")
