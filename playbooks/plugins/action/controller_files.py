"""Write many small files on the controller in one task: copy in a loop would run two modules for each of 500 hosts."""

from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """Write what differs, each file whole or not at all."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {"folder": {"type": "path", "required": True}, "files": {"type": "dict", "required": True}}
        )
        folder = Path(arguments["folder"])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in arguments["files"].items():
                self.write(folder / name, content)
        except OSError as error:
            result.update(failed=True, msg=f"{error.filename}: cannot be written: {error.strerror}")
        result["changed"] = False
        return result

    def write(self, path, content):
        """One file, through a neighbour that takes its place."""
        if path.is_file() and path.read_text(encoding="utf-8") == content:
            return
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(content, encoding="utf-8")
        partial.chmod(0o644)
        partial.replace(path)
