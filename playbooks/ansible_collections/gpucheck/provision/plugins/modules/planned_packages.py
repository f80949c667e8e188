#!/usr/bin/python
"""Bring the packages of some of a plan's components onto a host, in one transaction and one round trip."""

DOCUMENTATION = r"""
module: planned_packages
short_description: Install exactly the planned packages of some components in one transaction, and hold them
description:
  - First finishes an interrupted transaction. With the driver among the components, the planned module stream (dnf) is
    enabled, what the transaction builds on is installed, and the planned repository of DKMS (dnf) is named where no
    source of the host offers DKMS.
  - Blocking holds (apt) and version locks (dnf) are removed, and restored if the transaction fails.
  - Simulates every transaction first. One that would remove or downgrade packages that are neither planned nor
    NVIDIA's, or change one that a person holds, is rejected, with their names.
  - Does not call the package manager if nothing differs, or only files differ.
  - Returns the result of C(plan_state) for the host afterwards.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, for messages."}
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1."}
  components: {type: list, elements: str, required: true, description: Names of the plan's package components that are
    installed together.}
  extra: {type: list, elements: str, default: [], description: "Packages without versions for the same transaction, such
    as kernel headers. They are not held."}
  files: {type: list, elements: dict, default: [], description: "Rows of C(host_files) to put in place before, such as
    options that the installation's own scripts read."}
  state: {type: str, choices: [present, prepared], default: present, description: "C(present) installs. C(prepared)
    simulates the installation, rejects what C(present) would reject, and downloads the packages, so that failures
    happen before the host is drained. No installed package changes. On dnf the module stream is enabled, and compilers
    and the source of DKMS are installed. Where DKMS is there, it builds the planned kernel module in a temporary
    directory, with the lowest priority; a module that does not build fails. In check mode, C(prepared) downloads
    nothing and reads the sources that are set up; see C(moves_unknown)."}
  allow_changes: {type: list, elements: str, default: [], description: "Names or patterns of foreign packages that the
    transaction may remove, downgrade, or change though held."}
  lock_timeout_s: {type: int, default: 600, description: Seconds to wait while another program holds the package
    manager's lock.}
  transaction_timeout_s: {type: int, default: 2700, description: "Seconds after which a transaction is stopped, because
    a package's script hangs."}
notes:
  - Why this module exists. M(ansible.builtin.apt) and M(ansible.builtin.dnf) do not simulate, hold and install all
    components in one transaction.
author: gpucheck
"""

RETURN = r"""
differences: {description: As plan_state returns it.}
components: {description: As plan_state returns it.}
reboot: {description: As plan_state returns it.}
host: {description: As plan_state returns it.}
moves: {returned: success, type: list, elements: str, description: "With C(prepared), what the transaction would remove
  or downgrade besides the planned packages."}
moves_refused: {returned: success, type: str, description: "With C(prepared) in check mode, why a run would reject the
  transaction, empty if it would not."}
moves_unknown: {returned: success, type: str, description: "With C(prepared), why it is not known what the transaction
  would do, empty if it is."}
not_built: {returned: success, type: str, description: "With C(prepared), why DKMS did not build the module beforehand,
  empty if it did or none changes."}
transaction: {returned: success, type: list, elements: dict, description: "With C(prepared) in check mode, every package
  that the transaction would install, upgrade, downgrade or remove.", contains: {
  verb: {type: str, description: "install, upgrade, downgrade or remove."},
  name: {type: str, description: The package.},
  before: {type: str, description: "Its version now, empty if it is not installed."},
  version: {type: str, description: "Its version afterwards, empty if it is removed."},
}}
download_bytes: {returned: success, type: int, nullable: true, description: "With C(prepared) in check mode, bytes that
  the package manager would download for it; what its cache has does not count. Null if it did not report them."}
kernels_before: {returned: success, type: list, elements: str, description: Releases of the kernels that were installed
  before.}
"""

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
    if left and not manager.plans_through(module, order):
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
