"""Print text for people as it is: debug would wrap a table into one YAML or JSON value."""

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    """Runs on the controller, touches nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """Print ``text``, one line a line."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec({"text": {"type": "str", "required": True}})
        Display().display(arguments["text"].rstrip("\n"))
        result["changed"] = False
        return result
