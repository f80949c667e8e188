"""Optional components of a plan: what they need on a host in addition to packages."""

import os

from . import host, host_plan, isolation, running


def planned(plan):
    return [name for name in host_plan.OPTIONS if plan["components"].get(name)]


def part(plan, name, kind):
    """Rows of one kind (services, files) that an option of the plan has."""
    return (plan["components"].get(name) or {}).get(kind) or []


def rows(plan, kind):
    return [row for name in host_plan.OPTIONS for row in part(plan, name, kind)]


def live_root():
    """Where the running kernel shows itself: / or, on a simulated machine, its folder."""
    return os.path.join(host.SIMULATOR, "root") if host.simulation() is not None else "/"


def differences(plan, name):
    words = host_plan.file_differences(part(plan, name, "files"))
    words += isolation.acs_words(live_root()) if name == "acs" else []
    services = part(plan, name, "services")
    return words + running.differences({"services": services}, running.states([row["name"] for row in services]))


def refusals(plan, packages):
    """Why the plan cannot be carried out here, each with what to do: nothing is changed on such a host."""
    found = []
    for name in planned(plan):
        old = [package for package in plan["components"][name].get("refuse") or [] if package in packages]
        if old:
            rows = ", ".join(f"{package} {packages[package]}" for package in old)
            remove = "apt purge" if plan["package_manager"] == "apt" else "dnf remove"
            found.append(
                f"{name.upper()} is planned, and {rows} of another generation is installed, which gpucheck did not "
                f"install and other programs may use. Remove it first ({remove} and its name), or set {name}: none in "
                "stack.yml"
            )
    return found


def unneeded_services(recorded, plan):
    """Services of the recorded plan's options that this plan has no more and that are still there.

    A package's own scripts may leave its unit enabled, so units are stopped before the package is removed.
    """
    before = [row["name"] for row in rows(recorded or {"components": {}}, "services")]
    after = [row["name"] for row in rows(plan, "services")]
    gone = [name for name in before if name not in after]
    states = running.states(gone)
    return [name for name in gone if states.get(name, {}).get("LoadState") == "loaded"]
