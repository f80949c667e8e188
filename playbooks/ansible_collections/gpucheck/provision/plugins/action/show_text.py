"""Print text for people as it is: debug would wrap a table into one YAML or JSON value."""

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result


class ActionModule(ActionBase):
    """Runs on the controller, touches nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """Print ``text``, one line a line; what a terminal would act on is written out."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec({"text": {"type": "str", "required": True}})
        lines = arguments["text"].rstrip("\n").split("\n")
        Display().display("\n".join(node_result.one_line(line, len(line)) for line in lines))
        result["changed"] = False
        return result
