#!/usr/bin/python
"""Take or release the lease that lets one run at a time change a host."""

DOCUMENTATION = r"""
module: host_lock
short_description: Let one run at a time change a host
description:
  - With C(taken) notes on the host which run changes it. While another run does, waits so long, then fails and names
    it.
  - With C(renewed) extends the lease of the run that the step belongs to; fails where another run has it.
  - A lease ends with its run (C(released)), or so long after the last step of a run that died. A run of the same
    controller that is known to be dead is replaced at once.
  - Nothing is done in check mode.
options:
  state: {type: str, choices: [taken, renewed, released], required: true, description: What to do.}
  timeout_s: {type: int, default: 0, description: Seconds to wait for another run.}
  lease_s: {type: int, default: 3600, description: "Seconds after which the lease of a run that shows no sign of life
    lapses; longer than its longest step. With renewed, until its next step at least."}
  folder: {type: str, default: /var/lib/gpucheck, description: The folder of the lease on the host; it has to survive a
    reboot.}
  run: {type: dict, default: {}, description: The run; filled in by the action plugin.}
  dead: {type: str, default: "", description: The run that is known to be dead; filled in by the action plugin.}
notes:
  - Why this module exists. No builtin module has a lock that survives a reboot and ends with the run that holds it.
author: gpucheck
"""

RETURN = r"""
run: {returned: success, type: str, description: "This run and the folder, for the environment of its steps."}
holder: {returned: with taken and renewed, type: dict, nullable: true, description: "The run that has the lease, if it
  is another one.", contains: {
  id: {type: str, returned: always, description: What is unique to it.},
  controller: {type: str, returned: always, description: Name of its controller.},
  user: {type: str, returned: always, description: Who started it there.},
  pid: {type: int, returned: always, description: Its process there.},
  ticks: {type: str, returned: always, description: When that process started.},
  place: {type: str, returned: always, description: Boot and process namespace of that process.},
  started: {type: str, returned: always, description: When it started.},
  playbook: {type: str, returned: always, description: Its playbook.},
}}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import lock


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "renewed", "released"], "required": True},
            "timeout_s": {"type": "int", "default": 0},
            "lease_s": {"type": "int", "default": 3600},
            "folder": {"type": "str", "default": "/var/lib/gpucheck"},
            "run": {"type": "dict", "default": {}},
            "dead": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    run, folder, holder = module.params["run"], module.params["folder"], None
    try:
        if module.params["state"] == "released" and not module.check_mode:
            lock.release(run["id"], folder)
        elif module.params["state"] == "renewed" and not module.check_mode:
            holder = lock.renew(module.params["lease_s"])
        elif not module.check_mode:
            holder = lock.take(run, module.params["lease_s"], module.params["dead"], folder)
    except OSError as error:
        hint = "Free space there, or mount it writable, then run again."
        module.fail_json(msg="the lock of this host cannot be written: {}. {}".format(error, hint))
    module.exit_json(changed=False, run="{} {}".format(run["id"], folder), holder=holder)


if __name__ == "__main__":
    main()
