#!/usr/bin/python
"""Documentation of stack_plans; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: stack_plans
short_description: The plan of every host, and what its gpucheck is to be installed from
description:
  - Finds the plans of all hosts of group gpu, on the controller, from the facts of the hosts (gpu_facts_read).
  - With O(source=spec), gpucheck resolves the specification into the lock and the lock into plans, in one call, and
    prints the plan of every group. A host without facts in this run stays in the lock with those of an earlier one.
  - Changes only files of the controller, so it never reports a change, and also runs in check mode.
options:
  source:
    description: >-
      Source of the plans, the specification (C(spec)), the set that was recorded on each host before the current one
      (record), or a file with the plan of the task's host (file).
    type: str
    choices: [spec, record, file]
    required: true
  folder:
    description: Where facts and plans are written, one file a host.
    type: path
    required: true
  wheel:
    description: The wheel of gpucheck, its path and the digest of its sources.
    type: dict
    required: true
  bundle_place:
    description: Where a host keeps a bundle.
    type: str
    required: true
  torch_index:
    description: Address of the index of PyTorch's own builds, without the build's name.
    type: str
    required: true
  gpucheck:
    description: The program; for O(source=spec).
    type: path
  spec:
    description: The stack specification (stack.yml); for O(source=spec).
    type: path
  lock:
    description: The lock that is written; for O(source=spec).
    type: path
  bundle:
    description: A bundle that is the only source; for O(source=spec).
    type: path
  knowledge:
    description: Directory with rows that replace or extend the tables of gpucheck; for O(source=spec).
    type: path
  file:
    description: The plan; for source=file.
    type: path
attributes:
  check_mode:
    description: Computes in check mode too.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.command) would start gpucheck once per host.
author: gpucheck
"""

EXAMPLES = r"""
- name: Compute the plans
  gpucheck.provision.stack_plans:
    source: spec
    gpucheck: /usr/local/bin/gpucheck
    spec: stack.yml
    lock: stack.lock.yml
    folder: build
    wheel: "{{ controller_wheel }}"
    bundle_place: /var/lib/gpucheck/bundle
    torch_index: https://download.pytorch.org/whl/
"""

RETURN = r"""
plans:
  description: >-
    For each host that has a plan its file, the SHA-256 of its text, the requirements and arguments for pip, the digest
    of what decides those, downloads, whether pip is to fetch torch from public indexes, and as_planned, whether the
    plan recorded on the host is this very plan, so that its comparison with it stands.
  returned: success
  type: dict
"""
