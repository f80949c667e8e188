#!/usr/bin/python
"""Documentation of rollout_mark; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: rollout_mark
short_description: Mark where a host is in a rollout, and stop the rollout where too many hosts failed
description:
  - A host that began and never came to its end has failed; hosts of the same batch that are still at work do not count.
  - The marks last as long as the run.
options:
  state:
    description: The host begins to change, or is done.
    type: str
    choices: [begun, done]
    required: true
  max_failing_percent:
    description: With begun, the share of the fleet (group gpu) that may have failed; beyond, the task fails.
    type: int
    default: 100
attributes:
  check_mode:
    description: Hosts do not change in check mode, so it has nothing to mark.
    support: none
notes:
  - Why this module exists. C(max_fail_percentage) counts one batch; a rollout over several batches needs the
    failures of all.
author: gpucheck
"""

EXAMPLES = r"""
- name: Begin
  gpucheck.provision.rollout_mark:
    state: begun
    max_failing_percent: 20
"""

RETURN = r"""
rollout:
  description: The state that was marked.
  returned: success
  type: str
"""
