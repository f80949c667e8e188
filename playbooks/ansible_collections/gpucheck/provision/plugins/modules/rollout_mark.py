#!/usr/bin/python
"""Documentation of rollout_mark; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: rollout_mark
short_description: Mark where a host is in a rollout, and stop the rollout where too many hosts failed
description:
  - A host that began and is neither done nor waiting has failed; hosts of the same batch that are still at work do not
    count.
  - The marks last as long as the run.
options:
  state:
    description: The host begins to change, is done, or waits for the next run.
    type: str
    choices: [begun, done, waiting]
    required: true
  first:
    description: Hosts of a first batch (a canary) that must all be done before hosts of other batches begin.
    type: list
    elements: str
    default: []
  max_failing_percent:
    description: With begun, the share of the hosts that began earlier that may have failed; beyond, the task fails.
    type: int
    default: 100
  max_failing_hosts:
    description: With begun, how many of them may have failed.
    type: int
    default: 10
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
