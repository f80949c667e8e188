"""The controller's half of gpu_verify: the report that came with the result becomes a file."""

import json
from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils import files, node_result

SCHEMA = "gpucheck.report/1"
VERDICTS = ("pass", "warn", "fail", "unknown")
FINDING = ("check", "verdict", "subject")
# Where UNKNOWN is no proof. Training is UNKNOWN on a host without torch.
ESSENTIAL = ("driver", "inventory", "fabric")
MOST_SHOWN = 4


def report_of(text, host):
    """The report as a document under the host's name in the inventory. Raises ValueError, naming the field.

    The host's own name for itself is not believed: it may be another host's. Only what decides where the report goes
    and what it counts for is looked at here; gpucheck fleet decodes all of it.
    """

    def refuse(number):
        raise ValueError(f"the number {number}")

    try:
        report = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None
    node_result.bounded(report, node_result.MOST_REPORT_BYTES)
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ValueError(f"schema is not {SCHEMA}")
    if report.get("verdict") not in VERDICTS:
        raise ValueError("verdict is not one of " + ", ".join(VERDICTS))
    findings = report.get("findings")
    if not isinstance(findings, list) or not all(
        isinstance(row, dict) and all(isinstance(row.get(name), str) for name in FINDING) for row in findings
    ):
        raise ValueError("findings is not a list of findings")
    return {**report, "host": host}


def faults(report, gpus):
    """Why a host with this quick report may not return to service, as texts. gpus: how many it had before."""
    topology = report.get("topology")
    seen = topology.get("gpus") if isinstance(topology, dict) else None
    count = len(seen) if isinstance(seen, list) else 0
    found = [f"{count} GPUs of {gpus} before"] if count < gpus else []
    for row in report["findings"]:
        if row["verdict"] == "fail" or (row["verdict"] == "unknown" and row["check"] in ESSENTIAL):
            words = row.get("why") or row.get("seen") or row.get("code") or ""
            found.append(f"{row['verdict'].upper()} {row['check']} of {row['subject']}: {words}")
    return [node_result.one_line(words, 400) for words in found]


class ActionModule(ActionBase):
    """Runs the module on the host, then writes on the controller."""

    def run(self, tmp=None, task_vars=None):
        """The module's result, with ``dest`` in place of the report's text: no run keeps 500 of those in memory."""
        result = super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        result.update(self._execute_module(task_vars=task_vars))
        result = node_result.received(self, result, host)
        report = result.pop("report", None)
        if report is None or result.get("failed"):
            return result
        dest = Path(self._task.args["dest"])
        try:
            node_result.file_name(dest.name)
            # Readable for the owner and its group.
            report = report_of(report, host)
            files.write(dest, json.dumps(report, indent=2) + "\n", 0o640)
        except ValueError as error:
            words = f"{host}: gpu_verify returned no report: field report: {node_result.one_line(str(error), 200)}."
            return {**result, "failed": True, "msg": words}
        except OSError as error:
            return {**result, "failed": True, "msg": f"{error.filename}: cannot be written: {error.strerror}"}
        found = faults(report, int(self._task.args.get("gpus", 0))) if self._task.args.get("only") else []
        if found:
            more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
            words = f"{host}: does not pass the quick verification: {'; '.join(found[:MOST_SHOWN])}{more}. See {dest}."
            return {**result, "failed": True, "msg": words}
        return {**result, "dest": str(dest)}
