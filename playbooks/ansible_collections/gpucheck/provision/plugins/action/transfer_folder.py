"""Name the folder for a transfer here: programs on the controller read the name, so a host must not choose it."""

import secrets

from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import files, node_result

FOLDER = "/var/tmp/gpucheck-transfer-"  # noqa: S108 - with random digits, and the module rejects one that exists


class ActionModule(ActionBase):
    """Runs the module on the host, and returns the name that was chosen here, whatever the host answers."""

    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Create a folder, or remove the one that is named."""
        result = super().run(tmp, task_vars)
        arguments = node_result.arguments(self)
        if arguments["state"] == "present":
            arguments["path"] = FOLDER + secrets.token_hex(16)
        try:
            files.remote(arguments["path"])
        except files.Outside as error:
            return {**result, "failed": True, "msg": f"{error}. Nothing was done."}
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        answer = node_result.received(self, result, task_vars["inventory_hostname"])
        return answer if answer.get("failed") else {**answer, "path": arguments["path"]}
