#!/usr/bin/python
"""Load the planned kernel modules and bring the services to their planned state, in one round trip."""

DOCUMENTATION = r"""
module: driver_in_force
short_description: Load kernel modules, start services, and report what is not active as planned
description:
  - Loads the modules first, so that no service fails without its module.
  - Reads the state of all services once, and changes only those that differ from the plan. If one fails, those after it
    are not changed, and the message contains systemd's output.
  - Returns the result of C(plan_state) for the host afterwards.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, for messages."}
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1."}
  modules: {type: list, elements: str, default: [], description: Kernel modules to load.}
  services: {type: list, elements: dict, default: [], description: "Rows of C(name) without .service, C(enabled), and
    C(state), started, stopped or leave; as in a plan."}
  reload: {type: bool, default: false, description: Let systemd read its units before.}
  forgive: {type: bool, default: false, description: "Forget the attempts of failed services before. While its module
    was being built, a daemon may have used up the starts that it is allowed in two minutes."}
  restart: {type: bool, default: false, description: "Restart the services to start, because files that they have loaded
    were replaced."}
notes:
  - Why this module exists. M(ansible.builtin.systemd_service) takes one service per round trip and does not compare
    with the plan.
author: gpucheck
"""

RETURN = r"""
actions: {returned: always, type: list, elements: str, description: "What was, or would be, done, as arguments for
  modprobe and systemctl."}
differences: {description: As plan_state returns it.}
components: {description: As plan_state returns it.}
reboot: {description: As plan_state returns it.}
host: {description: As plan_state returns it.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import host_plan, running
from ..module_utils.call import Refused, call, explained
from ..module_utils.compare import compare
from ..module_utils.host import image, read_facts

DRIVER = "nvidia"


def due(services, seen, forgive=False, restart=False):
    """The calls of systemctl that bring services to their planned state, in order. seen: of running.states."""
    calls = []
    failed = running.failed(seen)
    if forgive and failed:
        calls.append(["reset-failed", *failed])
    for row in services:
        name, state = row["name"], seen[row["name"]]
        if bool(row["enabled"]) != (state.get("UnitFileState") in running.ENABLED):
            calls.append(["enable" if row["enabled"] else "disable", name])
        if image():
            continue
        active = state.get("ActiveState") == "active"
        if row["state"] == "started" and (restart or not active):
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
        return "{0} is masked. If that is not intended: systemctl unmask {0}, then run again.".format(name)
    return ""


def journal(module, name):
    """Return the last lines that a service wrote, or "" if there are none."""
    if not module.get_bin_path("journalctl"):
        return ""
    status, output, _ = module.run_command(["journalctl", "--no-pager", "--quiet", "-o", "cat", "-n", "5", "-u", name])
    return " Its log: {}".format(" / ".join(output.split("\n")).strip(" /")) if status == 0 and output.strip() else ""


def systemctl(module, words):
    """Run one call. Raises Refused with the messages of systemd and the service."""
    try:
        call(module, ["systemctl", *words])
    except Refused as error:
        name = words[-1]
        raise Refused(
            "{}.{} Check systemctl status {} on the host, repair the service, then run again".format(
                str(error).rstrip("."), journal(module, name), name
            )
        )


def load(module, name):
    """Load one module. Raises Refused with the kernel's message and the fix."""
    try:
        call(module, ["modprobe", name])
    except Refused as error:
        facts = read_facts(module.params["host"])[0]
        raise Refused(not_loaded(name, str(error).rstrip("."), module.params["plan"], facts))


def not_loaded(name, message, plan, facts):
    if name != DRIVER:
        why = "the kernel rejected module {}, which is planned at boot: {}. ".format(name, message)
        if name == "nvidia_peermem":
            rebuild = " ".join(host_plan.build_again(plan, facts["kernel"]))
            return (
                why
                + "nvidia_peermem works only if OFED was installed when the driver was built: run {}, reboot, "
                "then run again".format(rebuild)
            )
        return (
            why + "The last lines of dmesg have the reason; the module may be in a package of extra modules for this "
            "kernel. Then run again"
        )
    # Where the distribution builds the modules, the firmware knows the key that they are signed with.
    hint = (
        "Secure Boot is on: enroll the key that DKMS signs with (mokutil --import), or disable Secure Boot."
        if facts["secure_boot"] is True and not plan.get("kernel_modules")
        else "The last lines of dmesg have the reason; if the kernel was replaced on disk since the boot, reboot."
    )
    return (
        "driver {} is installed and its module built for kernel {}, but it cannot be loaded: {}. {} Then run "
        "again".format(facts["driver"]["installed_version"], facts["kernel"], message, hint)
    )


def take(module, words, done):
    """Run one step, except in check mode, and append it to done. Raises Refused."""
    if not module.check_mode and words[0] == "modprobe":
        load(module, words[1])
    elif not module.check_mode:
        systemctl(module, words)
    done.append(" ".join(words))


def act(module, done):
    """Load, reload, start; append each step to done, also in check mode. Raises Refused."""
    params = module.params
    loads = [["modprobe", name] for name in params["modules"]] + ([["daemon-reload"]] if params["reload"] else [])
    # In an image nothing is loaded or started: services are enabled for its first boot.
    for words in [] if image() else loads:
        take(module, words, done)
    # What another program starts and stops, it also enables.
    services = [row for row in params["services"] if row["state"] != "leave"]
    seen = running.states([row["name"] for row in services])
    for row in services:
        why = refusal(row["name"], seen[row["name"]])
        if why:
            raise Refused(why)
    for words in due(services, seen, params["forgive"], params["restart"]):
        take(module, words, done)


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "modules": {"type": "list", "elements": "str", "default": []},
            "services": {"type": "list", "elements": "dict", "default": []},
            "reload": {"type": "bool", "default": False},
            "forgive": {"type": "bool", "default": False},
            "restart": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    host, plan, done = module.params["host"], module.params["plan"], []
    with explained(module, host):
        act(module, done)
        state = compare(host, plan, "")
    # A reload, and attempts that are forgotten, leave no trace on the host.
    changed = any(not words.startswith(("daemon-reload", "reset-failed")) for words in done)
    module.exit_json(changed=changed, actions=done, **state)


if __name__ == "__main__":
    main()
