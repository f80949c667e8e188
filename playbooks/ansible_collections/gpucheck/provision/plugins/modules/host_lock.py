#!/usr/bin/python
"""Take or release the lease that lets one run at a time change a host."""

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
        module.fail_json(msg=f"the lock of this host cannot be written: {error}. {hint}")
    module.exit_json(changed=False, run="{} {}".format(run["id"], folder), holder=holder)


if __name__ == "__main__":
    main()
