#!/usr/bin/python
"""What of a plan is not yet true on a host, in one round trip."""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.call import explained
from ..module_utils.compare import changes, compare
from ..module_utils.host import read_facts
from ..module_utils.offers import missing, query_missing


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "digest": {"type": "str", "default": ""},
            "headers": {"type": "bool", "default": False},
            "offered": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    host = module.params["host"]
    with explained(module, host):
        known, plan = read_facts(host), module.params["plan"]
        answer = compare(host, plan, module.params["digest"], known)
        if module.params["headers"]:
            needed, more = answer["host"]["headers_missing"], answer["host"]["modules_packages"]
            absent = missing(needed + more, plan["package_manager"])
            answer["host"]["headers_unavailable"] = [name for name in absent if name in needed]
            answer["host"]["modules_unavailable"] = [name for name in absent if name in more]
        if module.params["offered"]:
            found = query_missing(plan, known[1]["packages"], module.params["offered"])
            answer["host"].update(zip(("offers_missing", "offers_unknown"), found))
    if module._diff:
        answer["diff"] = changes(plan, answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
