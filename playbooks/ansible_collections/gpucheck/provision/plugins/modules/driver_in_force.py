#!/usr/bin/python
"""Load the planned kernel modules and bring the services to their planned state, in one round trip."""

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
        return f"{name}: there is no such service here. Its package is missing or damaged: install it again."
    if state.get("LoadState") == "masked":
        return f"{name} is masked. If that is not intended: systemctl unmask {name}, then run again."
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
        why = str(error).rstrip(".") + "." + journal(module, name)
        raise Refused(f"{why} Check systemctl status {name} on the host, repair the service, then run again")


def load(module, name):
    """Load one module. Raises Refused with the kernel's message and the fix."""
    try:
        call(module, ["modprobe", name])
    except Refused as error:
        facts = read_facts(module.params["host"])[0]
        raise Refused(not_loaded(name, str(error).rstrip("."), module.params["plan"], facts))


def not_loaded(name, message, plan, facts):
    if name != DRIVER:
        why = f"the kernel rejected module {name}, which is planned at boot: {message}. "
        if name == "nvidia_peermem":
            rebuild = " ".join(host_plan.build_again(plan, facts["kernel"]))
            return (
                why
                + f"nvidia_peermem works only if OFED was installed when the driver was built: run {rebuild}, reboot, "
                "then run again"
            )
        return (
            why + "The last lines of dmesg have the reason; the module may be in a package of extra modules for this "
            "kernel. Then run again"
        )
    if facts["driver"]["installed_version"] is None:
        return (
            f"kernel {facts['kernel']}, which this host has booted, has no module of the driver: {message}. Run again, "
            "which builds one for this kernel, or boot the kernel that has one (dkms status)"
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
