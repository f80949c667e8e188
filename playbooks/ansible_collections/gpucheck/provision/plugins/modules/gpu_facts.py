#!/usr/bin/python
"""Read everything the stack resolver needs to know about a host, in one round trip."""

DOCUMENTATION = r"""
module: gpu_facts
short_description: Read GPUs, driver, kernel and NVIDIA packages of a host in one round trip
description:
  - Returns the host facts (schema gpucheck.facts/1) that C(gpucheck stack lock) reads.
  - Compares the host with the plan that an earlier run recorded on it in the same breath. A controller whose plan for
    the host is still that one knows from this single round trip that nothing has to be done.
  - Needs only Python's standard library on the host, no lspci. Never changes anything. Without root, the programs and
    package locks of other users are not seen.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, written into the facts."}
  record: {type: bool, default: false, description: "Also return the recorded plan itself, and the one that a rollback
    would return to."}
  controller_time: {type: float, default: 0, description: "What the time is on the controller, in seconds since 1970
    (UTC). 0 compares no clocks."}
notes:
  - Why this module exists. M(ansible.builtin.setup) reads no GPUs, holds, locks or recorded plan, and takes longer.
author: gpucheck
"""

RETURN = r"""
facts: {returned: success, type: dict, description: "The facts, schema gpucheck.facts/1.", contains: {
  gpus: {returned: always, type: list, elements: dict, description: GPUs on the PCI bus.},
  processes: {returned: always, type: list, elements: str, description: What holds a GPU open.},
}}
recorded: {returned: success, type: str, description: "SHA-256 of the plan recorded on the host, keys sorted; empty
  where there is none."}
requirements: {returned: success, type: str, description: Digest of the requirement set that gpucheck was installed
  from; empty where there is none.}
state: {returned: success, type: dict, description: The result of C(plan_state) for the recorded plan; empty if there is
  no plan., contains: {
  differences: {type: dict, description: Sentences by role., contains: {
    "*": {type: list, elements: str, description: Sentences of one role.},
  }},
  host: {type: dict, description: What else the roles need.},
}}
clock_ahead_s: {returned: success, type: int, description: "Seconds by which the host's clock is ahead of the
  controller's, negative where it is behind; the time that the question took on its way is in it."}
python: {returned: success, type: str, description: Version of the Python that runs the modules.}
recorded_set: {returned: where there is one, type: dict, description: Group and stack of the recorded plan., contains: {
  group: {type: str, nullable: true, description: Name of the group.},
  stack: {type: dict, nullable: true, description: The set.},
}}
plan: {returned: when asked for with record, type: dict, description: "The recorded plan, empty where there is none."}
way_back: {returned: when asked for with record, type: dict, description: "The plan that a rollback returns to, empty
  where there is none."}
"""

import platform
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import record
from ..module_utils.compare import compare
from ..module_utils.host import read_facts
from ..module_utils.host_plan import MARKER, recorded_plan
from ..module_utils.readers.files import Unreadable, text


def recorded_state(host, known):
    """How the host stands to the plan that was recorded on it, {} without a record that this version can read."""
    recorded = recorded_plan()
    if not recorded:
        return {}
    try:
        return compare(host, recorded, text(MARKER) or "", known)
    except (KeyError, TypeError, ValueError):
        return {}


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "record": {"type": "bool", "default": False},
            "controller_time": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    host, controller_time = module.params["host"], module.params["controller_time"]
    ahead = int(time.time() - controller_time) if controller_time else 0
    recorded = recorded_plan()
    try:
        known = read_facts(host)
        state = recorded_state(host, known)
    except Unreadable as error:
        module.fail_json(msg="{}: this host cannot be read: {}".format(host, error))
    answer = {"recorded": record.digest(recorded), "requirements": text(MARKER) or "", "state": state}
    answer.update(clock_ahead_s=ahead, python=platform.python_version())
    if recorded:
        answer["recorded_set"] = {part: recorded.get(part) for part in ("group", "stack")}
    if module.params["record"]:
        answer.update(plan=recorded or {}, way_back=record.way_back(recorded) or {})
    module.exit_json(changed=False, facts=known[0], **answer)


if __name__ == "__main__":
    main()
