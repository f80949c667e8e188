#!/usr/bin/python
"""Bring the packages of some of a plan's components onto a host, in one transaction and one round trip."""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import apt, dkms, dnf, host_plan, kept, place, running, transaction
from ..module_utils.call import Refused, call, explained
from ..module_utils.compare import compare
from ..module_utils.host import lock_name, read_facts, version_locks

REFUSED = {
    "apt": "apt could not install the planned packages; the holds were restored. {}. Check /var/log/dpkg.log on "
    "the host, repair the cause, then run again.",
    "dnf": "dnf could not install the planned packages; the version locks were restored. {}. Check /var/log/dnf.log on "
    "the host, repair the cause, then run again.",
}


def due(order):
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
        # Packages that pin another driver version: they keep the planned one out.
        "pins": [stray.split()[0] for stray in host["strays"] if with_driver and stray.startswith(apt.PIN)],
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


def lock(module, plan, names, known, held):
    """Lock what is installed now (dnf), or hold what came along (apt); what was read of the host, with the new locks.

    held: names that are held already.
    """
    facts, extras = known
    state = compare(module.params["host"], plan, "", known)["components"]
    add = [entry for name in names for entry in state[name]["missing"] if entry not in held]
    drop = [entry for name in names for entry in state[name]["stale"]]
    if plan["package_manager"] == "apt":
        if add:
            call(module, ["apt-mark", "hold", *add])
            facts["holds"] = sorted(set(facts["holds"]) | set(add))
    elif add or drop:
        dnf.lock_versions(module, add, drop)
        extras["locks"] = version_locks()
        facts["holds"] = sorted({lock_name(entry) for entry in extras["locks"]})
    return facts, extras


def act(module, order):
    """Install the packages, hold them, and return the host's state. Raises Refused, OSError, Unreadable."""
    plan, names = module.params["plan"], module.params["components"]
    for row in order["files"]:
        place.apply(module, row)
    bring = {"apt": apt.bring, "dnf": dnf.bring}[plan["package_manager"]]
    bring(module, order)
    known = read_facts(module.params["host"])
    known = lock(module, plan, names, known, order["holds"] if plan["package_manager"] == "apt" else [])
    # Distributions do it themselves at the end of a transaction; one that was cut off there never got to it.
    if "driver" in names and running.library_lost():
        call(module, ["ldconfig"])
    return compare(module.params["host"], plan, "", known)


def prepare(module, order, facts, packages):
    """Return what the transaction would do; downloads it unless in check mode. Raises Refused.

    packages: {name: version} installed now.
    """
    if not order["specs"]:
        return transaction.answer(download_bytes=0)
    manager = {"apt": apt, "dnf": dnf}[module.params["plan"]["package_manager"]]
    left = order["left_behind"]
    # rpm's database has to be mended first, before dnf can simulate the transaction.
    if left and not (manager is apt and apt.plans_through(module, order)):
        return transaction.answer(unknown="a run first finishes an interrupted transaction: {}".format(", ".join(left)))
    if not module.check_mode:
        moves = manager.prepare(module, order, True)[0]
        with explained(module, module.params["host"]):
            not_built = dkms.try_out(module, order, moves, facts)
        return transaction.answer(transaction.besides(moves, order["planned"]), not_built=not_built)
    if not order["stream_planned"]:
        return transaction.answer(unknown="the planned module stream is not enabled yet")
    try:
        moves, download_bytes = manager.prepare(module, order, False)
    except Refused as error:
        return transaction.answer(unknown=str(error))
    refused = transaction.foreign(moves, order)
    return transaction.answer(
        transaction.besides(moves, order["planned"]),
        transaction.refusal(refused) if refused else "",
        rows=transaction.rows(moves, packages),
        download_bytes=download_bytes,
    )


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "components": {"type": "list", "elements": "str", "required": True},
            "extra": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "dict", "default": []},
            "state": {"type": "str", "choices": ["present", "prepared"], "default": "present"},
            "allow_changes": {"type": "list", "elements": "str", "default": []},
            "lock_timeout_s": {"type": "int", "default": 600},
            "transaction_timeout_s": {"type": "int", "default": 2700},
        },
        supports_check_mode=True,
    )
    host, plan, moves = module.params["host"], module.params["plan"], transaction.answer()
    with explained(module, host, REFUSED.get(plan.get("package_manager"), "{}.")):
        facts, extras = known = read_facts(host)
        state = compare(host, plan, "", known)
        order = orders(module.params, state, extras["packages"], facts["holds"])
        order["specs"] = kept.in_place_of(order["specs"], plan, extras["packages"])
        changed = due(order)
        if module.params["state"] == "prepared":
            # What it fetches is in the package manager's cache, which is no state of the host.
            moves, changed = prepare(module, order, facts, extras["packages"]), False
        elif changed and not module.check_mode:
            state = act(module, order)
    module.exit_json(changed=changed, kernels_before=facts["kernels"], **moves, **state)


if __name__ == "__main__":
    main()
