#!/usr/bin/python
"""What of a plan is not yet true on a host, in one round trip."""

DOCUMENTATION = r"""
module: plan_state
short_description: Compare a host with its plan in one round trip
description:
  - Lists every difference between the host and its plan (schema gpucheck.plan/1), by the role that removes it.
  - An empty answer means that nothing has to be done. Never changes anything.
options:
  host:
    description: The host's name in the inventory.
    type: str
    required: true
  plan:
    description: The plan that C(gpucheck stack plan --format json) printed, parsed.
    type: dict
    required: true
  digest:
    description: Digest of the requirement set gpucheck has to be installed from; empty leaves gpucheck out.
    type: str
    default: ""
attributes:
  check_mode:
    description: Reads only, so check mode makes no difference.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Compare the host with its plan
  plan_state:
    host: "{{ inventory_hostname }}"
    plan: "{{ host_plan }}"
  become: true
  register: host_state
"""

RETURN = r"""
differences:
  description: By role (repository driver cuda cudnn nccl container_toolkit gpucheck), sentences. Roles without one are
    left out.
  returned: success
  type: dict
components:
  description: By package component, packages that differ, and holds to add (missing) or to remove first (stale).
  returned: success
  type: dict
reboot:
  description: Why a reboot is due now, by the plan's rule.
  returned: success
  type: list
host:
  description: What else the roles need (driver, kernel, busy processes, rival sources, free space, tools, unfinished
    packages, enabled module stream, files and services that differ).
  returned: success
  type: dict
"""

import os  # noqa: E402

from ansible.module_utils import gpu_plan, gpu_repository  # noqa: E402
from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpu_host import Unreadable, read_facts, text  # noqa: E402

ROLE_OF = {"fabric_manager": "driver"}


def compare(host, plan, digest):
    """The whole answer as a dict; see RETURN. Raises Unreadable, ValueError for a plan that is no plan."""
    if plan.get("schema") != "gpucheck.plan/1":
        raise ValueError("schema {!r} where gpucheck.plan/1 is wanted".format(plan.get("schema")))
    facts, beside = read_facts(host)
    packages = beside["packages"]
    differences = {"repository": gpu_repository.differences(plan, beside["keys"]), "driver": []}
    components = {}
    for name in gpu_plan.PACKAGE_COMPONENTS:
        words = gpu_plan.package_differences(plan, name, packages)
        held = gpu_plan.hold_differences(plan, name, packages, facts["holds"], beside["locks"])
        components[name] = {"packages": words, "missing": held[1], "stale": held[2]}
        differences.setdefault(ROLE_OF.get(name, name), []).extend(words + held[0])
    differences["driver"] += gpu_plan.driver_differences(plan, facts, packages)
    differences["driver"] += stream_differences(plan)
    differences["gpucheck"] = gpu_plan.gpucheck_differences(plan, digest)
    if beside["unfinished"]:
        names = ", ".join(beside["unfinished"])
        differences["driver"].insert(0, "a package transaction was cut off, unfinished: {}".format(names))
    return {
        "differences": {role: words for role, words in differences.items() if words},
        "components": components,
        "reboot": gpu_plan.reboot_reasons(plan, facts),
        "host": host_details(plan, digest, facts, beside),
    }


def stream_differences(plan):
    """The dnf module stream that is enabled against the planned one."""
    wanted = plan["module_stream"]
    if wanted is None:
        return []
    seen = gpu_plan.enabled_stream(wanted["module"])
    if seen == wanted["stream"]:
        return []
    return ["module {} has stream {} enabled, planned {}".format(wanted["module"], seen or "none", wanted["stream"])]


def host_details(plan, digest, facts, beside):
    """What roles act on besides sentences."""
    stream = plan["module_stream"]
    tool, images = gpu_plan.initramfs(beside["family"])
    space = os.statvfs("/usr")
    recorded = gpu_plan.recorded_plan()
    return {
        "driver": facts["driver"],
        "kernel": facts["kernel"],
        "nouveau_loaded": facts["nouveau_loaded"],
        "secure_boot": facts["secure_boot"],
        "python3": facts["python3"],
        "headers_present": facts["kernel"] in facts["headers"],
        "headers_missing": gpu_plan.headers_missing(plan, facts, beside["packages"]),
        "prerequisites_missing": gpu_plan.prerequisites_missing(plan, beside["packages"]),
        "strays": gpu_plan.strays(plan, beside["packages"]),
        "busy": gpu_plan.busy_processes(),
        "rivals": gpu_repository.rivals(plan),
        "free_bytes": space.f_bavail * space.f_frsize,
        "unfinished": beside["unfinished"],
        "module_stream": gpu_plan.enabled_stream(stream["module"]) if stream else None,
        "module_stream_planned": not stream_differences(plan),
        "plan_recorded": recorded is not None,
        "plan_current": recorded == plan,
        "requirements_current": bool(digest) and text(gpu_plan.MARKER) == digest,
        "versionlock": gpu_plan.versionlock_available(),
        "wrong_files": gpu_plan.wrong_files(plan),
        "wrong_initramfs_files": gpu_plan.initramfs_files(plan),
        "module_packages": gpu_plan.module_packages(plan),
        "services": gpu_plan.service_differences(plan),
        "initramfs_tool": tool,
        "initramfs_images": images,
        "initramfs_pending": os.path.exists(gpu_plan.INITRAMFS_PENDING),
    }


def main():
    """Compare, answer, change nothing."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "digest": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    host = module.params["host"]
    try:
        answer = compare(host, module.params["plan"], module.params["digest"])
    except Unreadable as error:
        module.fail_json(msg="{}: this host cannot be read: {}".format(host, error))
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(msg="{}: its plan is not a gpucheck.plan/1 document: {!r}".format(host, error))
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
