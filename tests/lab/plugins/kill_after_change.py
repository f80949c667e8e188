"""Kill the controller right after a step that changed a host, at each step once. For test_interruption."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_after_change
type: notification
short_description: Ends ansible-playbook with SIGKILL after each changing step that it has not been ended after before
description:
  - The steps are kept in the file that GPUCHECK_TEST_STEPS names, one a line.
author: gpucheck
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """As if the controller's power went."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "kill_after_change"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.steps = Path(os.environ["GPUCHECK_TEST_STEPS"])
        self.changing = False

    def v2_playbook_on_play_start(self, play):
        """Only what is done to hosts counts."""
        self.changing = play.get_name() == "Change the hosts"

    def v2_runner_on_ok(self, result):
        """A step is done, and nothing of what follows has begun."""
        step = result.task.get_name(include_role_fqcn=False)
        seen = self.steps.read_text().splitlines() if self.steps.exists() else []
        if self.changing and result.result.get("changed") and step not in seen:
            with self.steps.open("a") as file:
                file.write(f"{step}\n")
            os.kill(os.getpid(), signal.SIGKILL)
