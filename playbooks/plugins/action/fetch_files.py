"""Copy many and large files from a host, each in one transfer: fetch would read a file whole into memory, as root."""

from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Reads as the login user."""

    TRANSFERS_FILES = False
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Fetch every path of ``files``, relative to the folder ``src`` there, to the same path below ``dest`` here."""
        result = super().run(tmp, task_vars)
        spec = {name: {"type": "str", "required": True} for name in ("src", "dest")}
        spec["files"] = {"type": "list", "elements": "str", "required": True}
        _, arguments = self.validate_argument_spec(spec)
        name = ""
        try:
            for name in arguments["files"]:
                target = Path(arguments["dest"], name)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._connection.fetch_file(self._connection._shell.join_path(arguments["src"], name), str(target))
        except AnsibleError as error:
            result.update(failed=True, msg=f"{name} cannot be fetched: {error}")
            return result
        result["changed"] = False
        return result
