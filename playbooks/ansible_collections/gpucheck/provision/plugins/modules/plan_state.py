#!/usr/bin/python
"""What of a plan is not yet true on a host, in one round trip."""

DOCUMENTATION = r"""
module: plan_state
short_description: Compare a host with its plan in one round trip
description:
  - Lists every difference between the host and its plan (schema gpucheck.plan/1), by the role that removes it.
  - An empty result means that nothing has to be done. Never changes anything.
options:
  host: {type: str, required: true, description: The host's name in the inventory.}
  plan: {type: dict, required: true, description: "The plan that C(gpucheck stack plan --format json) printed, parsed."}
  digest: {type: str, default: "", description: Digest of the requirement set gpucheck has to be installed from; empty
    leaves gpucheck out.}
  headers: {type: bool, default: false, description: "Query also whether the package sources offer the kernel headers
    that are missing, and packages with modules that the kernel lacks. On apt, if the host's lists lack one, fresh ones
    are fetched into a temporary folder. The results are C(host.headers_unavailable) and C(host.modules_unavailable)."}
  offered: {type: list, elements: str, default: [], description: "Components whose packages are looked for in the host's
    sources, for a plan that adds none. On apt, if the host's lists lack one, fresh ones are fetched. The results are
    C(host.offers_missing), with the versions that a source has, and C(host.offers_unknown), why it could not be found
    out."}
notes:
  - Why this module exists. Check mode of the builtin modules takes one round trip per package, file and service.
author: gpucheck
"""

RETURN = r"""
differences: {returned: success, type: dict, description: "By role (repository driver cuda cudnn nccl container_toolkit
  container_engine dcgm acs kernel_arguments tuning kernel_lock gpucheck cleanup), sentences. Roles without one
  are omitted.", contains: {
  "*": {type: list, elements: str, description: Sentences of one role.},
}}
components: {returned: success, type: dict, description: "By package component, packages that differ, and holds to add
  (missing) or to remove first (stale).", contains: {
  "*": {type: dict, description: What differs of one component., contains: {
    packages: {type: list, elements: str, description: Sentences.},
  }},
}}
reboot: {returned: success, type: list, elements: str, description: "Why a reboot is due now, by the plan's rule."}
host: {returned: success, type: dict, description: "What else the roles need (driver, kernel, busy processes, rival
  sources, free space, tools, unfinished packages, enabled module stream, files and services that differ)."}
"""

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
