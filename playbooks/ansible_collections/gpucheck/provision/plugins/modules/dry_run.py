#!/usr/bin/python
"""Documentation of dry_run; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: dry_run
short_description: Print what a run would do to the hosts
description:
  - For hosts of group gpu that would change. Packages and versions, download sizes, reboots, drains, what is
    unconfirmed, and an estimate of the time by batch.
  - Uses what plays before it registered, C(host_plan), C(host_state) and C(packages_prepared).
options:
  reports:
    description: The directory that plan.json is written to, and that durations.json of earlier runs is read from.
    type: path
    required: true
  batch:
    description: As for C(rollout_batches).
    type: raw
    required: true
  plans:
    description: By host, what C(stack_plans) returned.
    type: dict
    required: true
  repositories:
    description: The report of C(gpucheck stack check-repositories), for download sizes.
    type: dict
    default: {}
  bundled:
    description: Whether the hosts install from a bundle.
    type: bool
    default: false
attributes:
  check_mode:
    description: Reads only, on the controller.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.debug) prints one host; this adds up a fleet by batch.
author: gpucheck
"""

EXAMPLES = r"""
- name: Print the dry run
  gpucheck.provision.dry_run:
    reports: reports
    batch: 25
    plans: "{{ controller_plans.plans }}"
"""

RETURN = "# nothing"
