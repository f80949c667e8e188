"""The controller's half of gpu_verify: the report that came with the answer becomes a file."""

from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Runs the module on the host, then writes on the controller."""

    def run(self, tmp=None, task_vars=None):
        """The module's answer, with ``dest`` in place of the report's text: no run keeps 500 of those in memory."""
        result = super().run(tmp, task_vars)
        result.update(self._execute_module(task_vars=task_vars))
        report = result.pop("report", None)
        if report is not None:
            dest = Path(self._task.args["dest"])
            try:
                dest.parent.mkdir(parents=True, exist_ok=True)
                dest.write_text(report, encoding="utf-8")
            except OSError as error:
                result.update(failed=True, msg=f"{error.filename}: cannot be written: {error.strerror}")
            else:
                result["dest"] = str(dest)
        return result
