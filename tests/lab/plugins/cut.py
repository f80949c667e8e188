"""Kill the controller at each step of a change once: right after it, or in the middle of it. For test_interruption."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Timer

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: cut
type: notification
short_description: Ends ansible-playbook with SIGKILL at each step at which it has not been ended before
description:
  - The steps are kept in the file that GPUCHECK_TEST_STEPS names, one a line.
  - After each step that changed something. With GPUCHECK_TEST_CHANGING, a file with names of steps, instead one second
    into each of these, or at its end if it is quicker.
author: gpucheck
"""
INTO_S = 1.0


def children(pid: int) -> list[int]:
    """Every process below this one."""
    found = []
    for row in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in row.read_text().split():
            found += [int(child), *children(int(child))]
    return found


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """As if the controller's power went."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "cut"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.steps = Path(os.environ["GPUCHECK_TEST_STEPS"])
        named = os.environ.get("GPUCHECK_TEST_CHANGING")
        self.named = Path(named).read_text().splitlines() if named else None
        self.changing, self.timer = False, None

    def v2_playbook_on_play_start(self, play):
        """Only what is done to hosts counts."""
        self.changing = play.get_name() == "Change the hosts"

    def v2_runner_on_start(self, host, task):
        """One of the named steps begins."""
        step = task.get_name(include_role_fqcn=False)
        if self.changing and self.named and step in self.named and not self.seen(step):
            self.timer = Timer(INTO_S, self.cut, [step])
            self.timer.start()

    def v2_runner_on_skipped(self, result):
        """It was not needed."""
        if self.timer:
            self.timer.cancel()
            self.timer = None

    def v2_runner_on_ok(self, result):
        """A step is done, and nothing of what follows has begun."""
        step = result.task.get_name(include_role_fqcn=False)
        if self.timer or (self.changing and not self.named and result.result.get("changed") and not self.seen(step)):
            self.cut(step)

    def seen(self, step):
        """Return whether an earlier run was ended there."""
        return self.steps.exists() and step in self.steps.read_text().splitlines()

    def cut(self, step):
        """Remember the step, and end this process with all that it started."""
        with self.steps.open("a") as file:
            file.write(f"{step}\n")
        for pid in (*children(os.getpid()), os.getpid()):
            os.kill(pid, signal.SIGKILL)
