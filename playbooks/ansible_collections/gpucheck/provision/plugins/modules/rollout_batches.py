#!/usr/bin/python
"""Documentation of rollout_batches; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: rollout_batches
short_description: Arrange the hosts that change into batches that cannot be lost completely
description:
  - Ansible ends a whole run where every host of a batch has become unreachable. Between the hosts this puts names of
    place holders, to be added to the inventory, each of which ends its batch and does nothing.
options:
  hosts:
    description: The hosts that change, in order.
    type: list
    elements: str
    required: true
  batch:
    description: So many hosts at a time, a share of the fleet such as 10%, or a list of those whose last one repeats.
    type: raw
    required: true
  fleet:
    description: Hosts that shares are taken of.
    type: int
    required: true
  limited:
    description: Whether --limit is set. Placeholders other than localhost are then not reached.
    type: bool
    default: false
attributes:
  check_mode:
    description: Computes only.
    support: full
notes:
  - Why this module exists. C(serial) alone ends the run, reports included, if every host of a batch becomes
    unreachable.
author: gpucheck
"""

EXAMPLES = r"""
- name: Arrange the batches
  gpucheck.provision.rollout_batches:
    hosts: [node01, node02, node03]
    batch: [1, 10]
    fleet: 3
  register: rollout
"""

RETURN = r"""
order:
  description: Hosts and place holders, for the hosts of a play.
  returned: success
  type: list
sizes:
  description: Members of each batch, for the serial of a play.
  returned: success
  type: list
keepers:
  description: The place holders, without localhost.
  returned: success
  type: list
first:
  description: The hosts of the first step of a list; empty for another batch size, or if it is the only batch.
  returned: success
  type: list
"""
