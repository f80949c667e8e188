#!/usr/bin/python
"""Read everything the stack resolver needs to know about a host, in one round trip."""

import platform
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import record
from ..module_utils.compare import compare
from ..module_utils.host import read_facts
from ..module_utils.host_plan import MARKER, recorded_plan
from ..module_utils.readers.files import Unreadable, text


def recorded_state(host, recorded, known):
    """How the host stands to the plan that was recorded on it, {} without a record that this version can read."""
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
        state = recorded_state(host, recorded, known)
    except Unreadable as error:
        module.fail_json(msg=f"{host}: this host cannot be read: {error}")
    answer = {"recorded": record.digest(recorded), "requirements": text(MARKER) or "", "state": state}
    answer.update(clock_ahead_s=ahead, python=platform.python_version())
    if recorded:
        answer["recorded_set"] = {part: recorded.get(part) for part in ("group", "stack")}
    if module.params["record"]:
        answer.update(plan=recorded or {}, way_back=record.way_back(recorded) or {})
    module.exit_json(changed=False, facts=known[0], **answer)


if __name__ == "__main__":
    main()
