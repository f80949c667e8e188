"""Copy many and large files to a host, each in one transfer: copy needs three round trips for every file."""

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result


class ActionModule(ActionBase):
    """Writes as the login user, into a folder of its own."""

    TRANSFERS_FILES = True
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Send every file of ``files`` (source here: name there) into the folder ``dest``."""
        result = super().run(tmp, task_vars)
        arguments, source = node_result.arguments(self), ""
        try:
            for source, name in arguments["files"].items():
                self._connection.put_file(source, self._connection._shell.join_path(arguments["dest"], name))
        except AnsibleError as error:
            result.update(failed=True, msg=f"{source} cannot be sent: {error}")
            return result
        result["changed"] = bool(arguments["files"])
        return result
