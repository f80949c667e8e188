#!/usr/bin/python
"""Bring the packages of some of a plan's components onto a host, in one transaction and one round trip."""

DOCUMENTATION = r"""
module: planned_packages
short_description: Install exactly the planned packages of some components in one transaction, and hold them
description:
  - First finishes an interrupted transaction. With the driver among the components, the planned module
    stream (dnf) is enabled, what the transaction builds on is installed, and the planned repository of DKMS (dnf) is
    named where no source of the host offers DKMS.
  - Blocking holds (apt) and version locks (dnf) are removed, and restored if the transaction fails.
  - Simulates every transaction first. One that would remove or downgrade packages that are neither planned nor
    NVIDIA's, or change one that a person holds, is rejected, with their names.
  - Does not call the package manager if nothing differs, or only files differ.
  - Returns the result of C(plan_state) for the host afterwards.
options:
  host:
    description: The host's name in the inventory, for messages.
    type: str
    required: true
  plan:
    description: The host's plan, schema gpucheck.plan/1.
    type: dict
    required: true
  components:
    description: Names of the plan's package components that are installed together.
    type: list
    elements: str
    required: true
  extra:
    description: Packages without versions for the same transaction, such as kernel headers. They are not held.
    type: list
    elements: str
    default: []
  files:
    description: Rows of C(host_files) to put in place before, such as options that the installation's own scripts read.
    type: list
    elements: dict
    default: []
  state:
    description:
      - C(present) installs. C(prepared) simulates the installation, rejects what C(present) would reject, and downloads
        the packages, so that failures happen before the host is drained. No installed package changes. On dnf the
        module stream is enabled, and compilers and the source of DKMS are installed. Where DKMS is there, it builds the
        planned kernel module in a temporary directory, with the lowest priority; a module that does not build fails.
      - In check mode, C(prepared) downloads nothing and reads the sources that are set up; see C(moves_unknown).
    type: str
    choices: [present, prepared]
    default: present
  allow_changes:
    description: >-
      Names or patterns of foreign packages that the transaction may remove, downgrade, or change though held.
    type: list
    elements: str
    default: []
  lock_timeout_s:
    description: Seconds to wait while another program holds the package manager's lock.
    type: int
    default: 600
  transaction_timeout_s:
    description: Seconds after which a transaction is stopped, because a package's script hangs.
    type: int
    default: 2700
attributes:
  check_mode:
    description: Reports whether something would be installed or held.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.apt) and M(ansible.builtin.dnf) do not simulate, hold and install all
    components in one transaction.
author: gpucheck
"""

EXAMPLES = r"""
- name: Install driver and CUDA
  gpucheck.provision.planned_packages:
    host: "{{ inventory_hostname }}"
    plan: "{{ host_plan }}"
    components: [driver, fabric_manager, cuda]
  become: true
  register: host_packages
"""

RETURN = r"""
differences:
  description: What still differs from the plan, sentences by role; see C(plan_state).
  returned: success
  type: dict
  contains:
    "*": {description: Sentences of one role., type: list, elements: str}
components:
  description: By package component, packages that still differ, and holds that are missing or stale.
  returned: success
  type: dict
  contains:
    "*":
      description: What differs of one component.
      type: dict
      contains: {packages: {description: Sentences., type: list, elements: str}}
reboot:
  description: Why a reboot is due now.
  returned: success
  type: list
  elements: str
host:
  description: What else the roles need; see C(plan_state).
  returned: success
  type: dict
moves:
  description: With C(prepared), what the transaction would remove or downgrade besides the planned packages.
  returned: success
  type: list
  elements: str
moves_refused:
  description: With C(prepared) in check mode, why a run would reject the transaction, empty if it would not.
  returned: success
  type: str
moves_unknown:
  description: With C(prepared), why it is not known what the transaction would do, empty if it is.
  returned: success
  type: str
not_built:
  description: With C(prepared), why DKMS did not build the module beforehand, empty if it did or none changes.
  returned: success
  type: str
transaction:
  description: >-
    With C(prepared) in check mode, every package that the transaction would install, upgrade, downgrade or remove.
  returned: success
  type: list
  elements: dict
  contains:
    verb: {description: "install, upgrade, downgrade or remove.", type: str}
    name: {description: The package., type: str}
    before: {description: "Its version now, empty if it is not installed.", type: str}
    version: {description: "Its version afterwards, empty if it is removed.", type: str}
download_bytes:
  description: >-
    With C(prepared) in check mode, bytes that the package manager would download for it; what its cache has does not
    count. Null if it did not report them.
  returned: success
  type: int
  nullable: true
kernels_before:
  description: Releases of the kernels that were installed before.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils import (
    apt,
    dnf,
    kept,
    loader,
    package_order,
    place,
    transaction,
    trial_build,
)
from ansible_collections.gpucheck.provision.plugins.module_utils.call import Refused, call, explained
from ansible_collections.gpucheck.provision.plugins.module_utils.compare import compare
from ansible_collections.gpucheck.provision.plugins.module_utils.host import lock_name, read_facts, version_locks

REFUSED = {
    "apt": "apt could not install the planned packages; the holds were restored. {}. Check /var/log/dpkg.log on "
    "the host, repair the cause, then run again.",
    "dnf": "dnf could not install the planned packages; the version locks were restored. {}. Check /var/log/dnf.log on "
    "the host, repair the cause, then run again.",
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
    if "driver" in names and loader.lost():
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
            not_built = trial_build.try_out(module, order, moves, facts)
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
    """Compare, change what differs, compare again."""
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
        order = package_order.orders(module.params, state, extras["packages"], facts["holds"])
        order["specs"] = kept.in_place_of(order["specs"], plan, extras["packages"])
        changed = package_order.due(order)
        if module.params["state"] == "prepared":
            # What it fetches is in the package manager's cache, which is no state of the host.
            moves, changed = prepare(module, order, facts, extras["packages"]), False
        elif changed and not module.check_mode:
            state = act(module, order)
    module.exit_json(changed=changed, kernels_before=facts["kernels"], **moves, **state)


if __name__ == "__main__":
    main()
