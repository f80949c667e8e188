"""Reject unknown variables with a prefix of this collection: a mistyped name would silently keep its default.

An argument specification only sees the names that it has.
"""

import difflib
from pathlib import Path

import yaml
from ansible.plugins.action import ActionBase

from ..plugin_utils import node_result

# roles: their folder. site: a YAML file whose keys are the variables that belong to no role.
ARGUMENTS = {"roles": {"type": "path", "required": True}, "site": {"type": "path", "required": True}}
NEAR = 0.88
# Of variables that belong to no role. A mistyped bundle_fingerprint would accept every signature.
SITE_PREFIXES = ("bundle_", "check_repositories_", "host_lock_", "stack_")
# Groups whose hosts the playbooks connect to.
GROUPS = ("gpu", "collectors")


def options(roles):
    """(settable, needed): names of role options that a site may set, and of those that the playbooks fill in."""
    settable, needed = set(), set()
    for path in sorted(Path(roles).glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
        for name, option in specs.items():
            (needed if option.get("required") else settable).add(name)
    return settable, needed


def mistakes(names, settable, needed, site):
    known = settable | needed | site
    prefixes = (*sorted({name.split("_")[0] + "_" for name in settable}), *SITE_PREFIXES)
    found = {}
    for name in sorted(set(names) - known):
        if name.startswith("ansible_"):
            continue
        near = difflib.get_close_matches(name, settable | site, n=1, cutoff=NEAR)
        if near:
            found[name] = f"{name}: no such variable. Did you mean {near[0]}?"
        elif name.startswith(prefixes):
            hint = difflib.get_close_matches(name, settable | site, n=1, cutoff=0.5)
            guess = f" Did you mean {hint[0]}?" if hint else _known(name, settable | site)
            found[name] = f"{name}: no such variable.{guess} If another role reads it, name it in other_variables."
    return found


def _known(name, known):
    same = sorted(one for one in known if one.split("_")[0] == name.split("_")[0])
    return f" Known: {', '.join(same)}." if same else ""


class ActionModule(ActionBase):
    """Runs on the controller, touches nothing."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        settable, needed = options(arguments["roles"])
        site = set(yaml.safe_load(Path(arguments["site"]).read_text(encoding="utf-8")))
        hosts = [host for group in GROUPS for host in task_vars["groups"].get(group, [])]
        named = {}
        try:
            for host in hosts:
                node_result.file_name(host)
        except ValueError as wrong:
            return {**result, "failed": True, "msg": f"{wrong}. Rename it in the inventory. Nothing was changed."}
        for host in hosts:
            variables = task_vars["hostvars"].raw_get(host)
            for name in set(variables) - set(variables.get("other_variables") or ()):
                named.setdefault(name, []).append(host)
        # Checked once for a name, not for every host that has it: the search for similar names is slow.
        found = mistakes(named, settable, needed, site)
        result["changed"] = False
        if found:
            lines = [f"{words} (set for {', '.join(named[name][:3])})" for name, words in found.items()]
            result.update(failed=True, msg=" ".join(lines) + " Nothing was changed.")
        return result
