"""Print what a run would do to the hosts, and write it to plan.json in reports_dir."""

import json
from itertools import accumulate
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible.utils.display import Display

from ..plugin_utils import dry_run, dry_run_text, files
from . import rollout_batches

# reports: where plan.json goes. plans: by host, what stack_plans returned.
# repositories: the report of gpucheck stack check-repositories, for download sizes.
ARGUMENTS = {
    "reports": {"type": "path", "required": True},
    "batch": {"type": "raw", "required": True},
    "plans": {"type": "dict", "required": True},
    "repositories": {"type": "dict", "default": {}},
    "bundled": {"type": "bool", "default": False},
}
FILE = "plan.json"
CHOICES = {"drain_with": "none", "ansible_connection": "ssh"}


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Collect what is known of each host that would change; print and write it."""
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        result["changed"] = False
        fleet = task_vars["groups"].get("gpu", [])
        variables = {host: task_vars["hostvars"].raw_get(host) for host in fleet}
        changing = [host for host in fleet if self.changes(variables[host])]
        groups = {row["group"]: row for row in arguments["repositories"].get("groups", ())}
        rows = {host: self.row(host, variables[host], arguments, groups) for host in changing}
        try:
            sizes = rollout_batches.sizes(arguments["batch"], len(changing), len(fleet))
        except ValueError as error:
            raise AnsibleError(f"batch={error}: not a number of hosts, a share such as 10%, or a list.") from error
        left_out = [host for host in fleet if "host_outcome" in variables[host]]
        # Hosts outside of --limit were not read.
        read = [host for host in fleet if "gpu_facts_read" in variables[host]]
        unchanged = len(set(read) - {*changing, *left_out})
        starts = list(accumulate(sizes, initial=0))
        batches = [changing[start : start + size] for start, size in zip(starts, sizes)]
        document = {
            "schema": dry_run.SCHEMA,
            "hosts": rows,
            "unchanged": unchanged,
            "left_out": left_out,
            "batches": batches,
        }
        path = Path(arguments["reports"]) / FILE
        files.write(path, json.dumps(document, indent=1) + "\n")
        where = f"\n{path} lists all packages of all hosts." if rows else ""
        Display().display(dry_run_text.to_text(document) + where)
        return result

    def changes(self, variables):
        """Whether a run would change the host: it is not rejected, and differs from its plan."""
        state = variables.get("host_state") or {}
        return "host_outcome" not in variables and bool(state.get("differences"))

    def row(self, host, variables, arguments, groups):
        templar = Templar(loader=self._loader, variables=variables)
        chosen = {name: str(templar.template(variables.get(name, default))) for name, default in CHOICES.items()}
        plan = dry_run.plain(variables["host_plan"])
        facts = (variables.get("gpu_facts_read") or {}).get("facts") or {}
        known = {
            "plan": plan,
            "state": dry_run.plain(variables["host_state"]),
            "prepared": dry_run.plain(variables.get("packages_prepared") or {}),
            "told": dry_run.plain(arguments["plans"].get(host) or {}),
            "group": groups.get(plan["group"], {}),
            "bundled": arguments["bundled"],
            "drain": None if chosen["drain_with"] == "none" else chosen["drain_with"],
            "simulated": bool(facts.get("stand_ins")),
            "local": chosen["ansible_connection"] == "local",
        }
        return dry_run.row_of(known)
