"""The components of a plan that a site asked for beside the stack: what they need on a host beside packages.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

from ansible.module_utils import gpu_plan
from ansible.module_utils.gpu_files import Unreadable


def planned(plan):
    """Names of the options that the plan has."""
    return [name for name in gpu_plan.OPTIONS if plan["components"].get(name)]


def services(plan, name):
    """Rows of the services that an option of the plan needs."""
    return (plan["components"].get(name) or {}).get("services") or []


def differences(plan, name):
    """Words for what of an option is not as planned, packages and holds aside."""
    return gpu_plan.service_differences({"services": services(plan, name)})


def refusals(plan, packages):
    """Why the plan cannot be carried out here, each with what to do: nothing is changed on such a host."""
    found = []
    for name in planned(plan):
        old = [package for package in plan["components"][name].get("refuse") or [] if package in packages]
        if old:
            found.append(
                "{} is planned, and {} of another generation is installed, which this run did not bring and something "
                "of the site may use. Remove it first ({} and its name), or set {}: none in stack.yml".format(
                    name.upper(),
                    ", ".join("{} {}".format(package, packages[package]) for package in old),
                    "apt purge" if plan["package_manager"] == "apt" else "dnf remove",
                    name,
                )
            )
    return found


def unneeded_services(recorded, plan):
    """Services of the recorded plan's options that this plan has no more and that are still there.

    A package's own scripts may leave its unit enabled, so they are stopped before it goes.
    """
    before = [row["name"] for name in gpu_plan.OPTIONS for row in services(recorded or {"components": {}}, name)]
    after = [row["name"] for name in gpu_plan.OPTIONS for row in services(plan, name)]
    gone = [name for name in before if name not in after]
    try:
        states = gpu_plan.service_states(gone)
    except Unreadable:
        return []
    return [name for name in gone if states.get(name, {}).get("LoadState") == "loaded"]
