"""Copy many and large files to a host, each in one transfer: copy needs three round trips for every file."""

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result
from ansible_collections.gpucheck.provision.plugins.plugin_utils.files import Outside, plain, remote


class ActionModule(ActionBase):
    """Writes as the login user, into a folder of its own."""

    TRANSFERS_FILES = True
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Send every file of ``files`` (source here: name there) into the folder ``dest``."""
        result = super().run(tmp, task_vars)
        arguments, source = node_result.arguments(self), ""
        try:
            folder = remote(arguments["dest"])
            targets = {source: f"{folder}/{plain(name)}" for source, name in arguments["files"].items()}
            for source, target in targets.items():
                self._connection.put_file(source, target)
        except Outside as error:
            result.update(failed=True, msg=f"{error}. Nothing was sent.")
            return result
        except AnsibleError as error:
            result.update(failed=True, msg=node_result.one_line(f"{source} cannot be sent: {error}"))
            return result
        result["changed"] = bool(arguments["files"])
        return result
