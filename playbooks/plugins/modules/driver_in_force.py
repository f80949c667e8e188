#!/usr/bin/python
"""Bring several services of a host to their planned state in one round trip."""

DOCUMENTATION = r"""
module: host_services
short_description: Enable, start, restart or stop several services of a host in one round trip
description:
  - Asks systemd once how all of them are, and acts only where one is not as planned.
  - Where one fails, those after it are not touched, and the message has systemd's own words about it.
options:
  services:
    description: Rows of C(name) without .service, C(enabled), and C(state), started or stopped; as in a plan.
    type: list
    elements: dict
    required: true
  reload:
    description: Let systemd read its units before.
    type: bool
    default: false
  forgive:
    description: >-
      Forget the attempts of failed services before. While its module was being built, a daemon may have used up the
      starts that it is allowed in two minutes.
    type: bool
    default: false
  restart:
    description: Start anew what is to be started; it holds what was replaced under it.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would be done.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Start the daemons
  host_services:
    services: [{name: nvidia-persistenced, enabled: true, state: started}]
    reload: true
  become: true
"""

RETURN = r"""
actions:
  description: What was, or would be, done, as words for systemctl.
  returned: always
  type: list
"""

from ansible.module_utils import gpu_services  # noqa: E402
from ansible.module_utils.basic import AnsibleModule  # noqa: E402


def due(services, seen, forgive=False, restart=False):
    """The calls of systemctl that bring services to their planned state, in order. seen: of gpu_services.states."""
    calls = []
    failed = gpu_services.failed(seen)
    if forgive and failed:
        calls.append(["reset-failed", *failed])
    for row in services:
        name, state = row["name"], seen[row["name"]]
        if bool(row["enabled"]) != (state.get("UnitFileState") in gpu_services.ENABLED):
            calls.append(["enable" if row["enabled"] else "disable", name])
        running = state.get("ActiveState") == "active"
        if row["state"] == "started" and (restart or not running):
            calls.append(["restart" if restart else "start", name])
        elif row["state"] == "stopped" and state.get("ActiveState") not in ("inactive", "unknown", None):
            calls.append(["stop", name])
    return calls


def refusal(name, state):
    """Why a service cannot be acted on, "" where it can."""
    if "error" in state:
        return "services cannot be read: {}. Is systemd running here?".format(state["error"])
    if state.get("LoadState") == "not-found":
        return "{}: there is no such service here. Its package is missing or damaged: install it again.".format(name)
    if state.get("LoadState") == "masked":
        return (
            "{0} is masked, which somebody did on purpose: ask them, or systemctl unmask {0}, then run again.".format(
                name
            )
        )
    return ""


def journal(module, name):
    """The last lines that a service wrote, "" where there are none to be had."""
    if not module.get_bin_path("journalctl"):
        return ""
    status, said, _ = module.run_command(["journalctl", "--no-pager", "--quiet", "-o", "cat", "-n", "5", "-u", name])
    return " It wrote: {}".format(" / ".join(said.split("\n")).strip(" /")) if status == 0 and said.strip() else ""


def systemctl(module, words, done):
    """One call; the task fails with what systemd and the service say."""
    status, _, said = module.run_command(["systemctl", *words])
    if status == 0:
        return
    name = words[-1]
    module.fail_json(
        msg="systemctl {}: {}.{} See systemctl status {} there, repair that, then run again.".format(
            " ".join(words), " ".join(said.split()).rstrip(".") or "exit {}".format(status), journal(module, name), name
        ),
        actions=done,
    )


def main():
    """Ask, then act."""
    module = AnsibleModule(
        argument_spec={
            "services": {"type": "list", "elements": "dict", "required": True},
            "reload": {"type": "bool", "default": False},
            "forgive": {"type": "bool", "default": False},
            "restart": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    services, done = module.params["services"], []
    if module.params["reload"]:
        if not module.check_mode:
            systemctl(module, ["daemon-reload"], done)
        done.append("daemon-reload")
    seen = gpu_services.states([row["name"] for row in services])
    for row in services:
        why = refusal(row["name"], seen[row["name"]])
        if why:
            module.fail_json(msg=why, actions=done)
    for words in due(services, seen, module.params["forgive"], module.params["restart"]):
        if not module.check_mode:
            systemctl(module, words, done)
        done.append(" ".join(words))
    # A reload, and attempts that are forgotten, leave no trace on the host.
    changed = any(not words.startswith(("daemon-reload", "reset-failed")) for words in done)
    module.exit_json(changed=changed, actions=done)


if __name__ == "__main__":
    main()
