"""The controller's half of every module without one of its own: what a host returns is decoded before it is believed.

Ansible looks for a plugin of this name wherever a module has none; the collection names it for each of its modules.
"""

from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result


class ActionModule(ActionBase):
    """Runs the module on the host."""

    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        """The module's result, as far as it fits the module's documentation."""
        result = super().run(tmp, task_vars)
        in_background = self._task.async_val and not self._connection.has_native_async
        result.update(self._execute_module(task_vars=task_vars, wrap_async=in_background))
        if not in_background:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return node_result.received(self, result, task_vars["inventory_hostname"])
