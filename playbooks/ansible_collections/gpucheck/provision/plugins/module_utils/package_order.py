"""What a package transaction has to do, from the plan and from what was read of the host."""

from . import apt, dkms, host_plan, place


def due(order):
    """True where there is anything to do."""
    parts = ("files", "specs", "unheld", "stale", "pins", "prerequisites", "compilers", "left_behind", "library_lost")
    return any(order[part] for part in parts) or not order["stream_planned"]


def orders(params, state, packages, held):
    """Return what is to be done, from the plan and the result of compare for the host.

    specs: of everything that is planned with these components, so that the transaction can move nothing of it; of what
    the plan wants in its newest version only what is not there yet, as the rest would move.
    """
    plan, names, host = params["plan"], params["components"], state["host"]
    rows = [row for name in names for row in host_plan.component(plan, name)[0]]
    parts = [state["components"][name] for name in names]
    with_driver = "driver" in names
    extra = [name for name in params["extra"] if name not in packages]
    left_behind = host["unfinished"] + host["superfluous"]
    installs = extra or left_behind or any(part["packages"] for part in parts)
    unheld = [word for part in parts for word in part["missing"]]
    specs = [row["spec"] for row in rows if row["version"] or row["name"] not in packages]
    driver_due = with_driver and bool(state["components"]["driver"]["packages"])
    modules = host.get("kernel_modules") or {"wanted": [], "installed": []}
    # They are built for one release of the driver: those that are there already move with it.
    if driver_due:
        extra += [name for name in modules["wanted"] if name not in extra]
    return {
        "plan": plan,
        "host": host,
        "specs": specs + extra if installs else [],
        "holds": [hold for name in names for hold in host_plan.component(plan, name)[1]] if installs or unheld else [],
        "unheld": unheld,
        "stale": [word for part in parts for word in part["stale"]],
        "pins": apt.pins(host["strays"]) if with_driver else [],
        "left_behind": left_behind,
        "library_lost": with_driver and host["library_lost"],
        "stream": plan["module_stream"],
        "stream_planned": host["module_stream_planned"] or not with_driver,
        "prerequisites": host["prerequisites_missing"] if driver_due else [],
        "compilers": host["compilers_missing"] if with_driver else [],
        "dkms_source": dkms.wanted(plan, packages) if driver_due else {},
        # Planned by any component: one of them may move with another.
        "planned": {row["name"] for name in plan["components"] for row in host_plan.component(plan, name)[0]}
        | set(modules["wanted"] + modules["installed"]),
        "held": held,
        "allowed": params["allow_changes"],
        "seconds": params["lock_timeout_s"],
        "files": [row for row in map(place.normal, params["files"]) if place.differs(row)],
    }
