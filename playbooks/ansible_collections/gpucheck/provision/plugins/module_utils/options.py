"""Optional components of a plan: what they need on a host in addition to packages."""

import glob
import os

from . import host, host_plan, isolation, running
from .readers.driver import MODULE_NAMES


def planned(plan):
    """Names of the options that the plan has."""
    return [name for name in host_plan.OPTIONS if plan["components"].get(name)]


def part(plan, name, kind):
    """Rows of one kind (services, files, modules) that an option of the plan has."""
    return (plan["components"].get(name) or {}).get(kind) or []


def rows(plan, kind):
    """The same of all options."""
    return [row for name in host_plan.OPTIONS for row in part(plan, name, kind)]


def paths(plan):
    """The files that options put on the host."""
    return [row["path"] for row in rows(plan, "files")]


def wrong(files):
    """Paths of those that are missing or different."""
    return [row["path"] for row in files if not host_plan.same_file(row["path"], row["content"], row["mode"])]


def live_root():
    """Where the running kernel shows itself: / or, on a simulated machine, its folder."""
    return os.path.join(host.SIMULATOR, "root") if host.simulation() is not None else "/"


def built(name, kernel, root="/"):
    """When DKMS built the newest module of this name for a kernel (seconds since 1970), None where it has not."""
    found = glob.glob(os.path.join(root, "var/lib/dkms", name, "*", kernel, "*/module", name.split("-")[0] + "*.ko*"))
    return max(os.stat(path).st_mtime for path in found) if found else None


def module_state(row, kernel, root="/", live="/"):
    """Return the state of an option's kernel module: built for this kernel and driver, loaded, usable.

    It uses the driver's own interface, whose symbols change with every build of the driver.
    """
    own = built(row["name"], kernel, root)
    drivers = [built(name, kernel, root) for name in MODULE_NAMES]
    driver = max([when for when in drivers if when is not None] or [0])
    return {
        "name": row["name"],
        "package": row["package"],
        "built": own is not None,
        "stale": own is not None and own < driver,
        "unfit": own is None or own < driver,
        "loaded": os.path.isdir(os.path.join(live, "sys/module", row["name"])),
        "device": os.path.exists(os.path.join(root, row["device"].lstrip("/"))),
    }


def modules(plan, kernel):
    """The state of every module that the options need."""
    return [module_state(row, kernel, live=live_root()) for row in rows(plan, "modules")]


def module_words(row, seen, kernel):
    """What of a module is not as planned: the first thing that is wrong explains the rest."""
    name, device = row["name"], row["device"]
    if not seen["built"]:
        return ["module {} is not built for kernel {}".format(name, kernel)]
    if seen["stale"]:
        return ["module {} was built before the driver's, and must be built again".format(name)]
    if not seen["loaded"]:
        return ["module {} is not loaded: /sys/module/{} and {} are missing".format(name, name, device)]
    return [] if seen["device"] else ["module {} is loaded, and {} is missing".format(name, device)]


def differences(plan, name, kernel):
    """Return messages for what of an option is not as planned, except packages and holds."""
    words = ["{} is missing or different".format(path) for path in wrong(part(plan, name, "files"))]
    for row in part(plan, name, "modules"):
        words += module_words(row, module_state(row, kernel, live=live_root()), kernel)
    words += isolation.acs_words(live_root()) if name == "acs" else []
    services = part(plan, name, "services")
    return words + running.differences({"services": services}, running.states([row["name"] for row in services]))


def state(plan, kernel):
    """What the roles act on besides sentences."""
    return {"wrong_files": wrong(rows(plan, "files")), "modules": modules(plan, kernel)}


def refusals(plan, packages):
    """Why the plan cannot be carried out here, each with what to do: nothing is changed on such a host."""
    found = []
    for name in planned(plan):
        old = [package for package in plan["components"][name].get("refuse") or [] if package in packages]
        if old:
            found.append(
                "{} is planned, and {} of another generation is installed, which gpucheck did not install and other "
                "programs may use. Remove it first ({} and its name), or set {}: none in stack.yml".format(
                    name.upper(),
                    ", ".join("{} {}".format(package, packages[package]) for package in old),
                    "apt purge" if plan["package_manager"] == "apt" else "dnf remove",
                    name,
                )
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
