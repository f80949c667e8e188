"""Copy many and large files to a host, each in one transfer: copy needs three round trips for every file."""

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..plugin_utils import node_result
from ..plugin_utils.files import Outside, plain, remote

# files: by path of a file here, its name there. dest: a folder there that the login user may write.
ARGUMENTS = {"files": {"type": "dict", "required": True}, "dest": {"type": "str", "required": True}}


class ActionModule(ActionBase):
    """Writes as the login user, into a folder of its own."""

    TRANSFERS_FILES = True
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Send every file of ``files`` (source here: name there) into the folder ``dest``."""
        result = super().run(tmp, task_vars)
        arguments, source = self.validate_argument_spec(ARGUMENTS)[1], ""
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
