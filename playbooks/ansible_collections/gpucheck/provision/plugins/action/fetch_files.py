"""Copy many and large files from a host, each in one transfer: fetch reads a complete file into memory, as root."""

import os
import resource
from contextlib import contextmanager

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpucheck.provision.plugins.plugin_utils import node_result
from ansible_collections.gpucheck.provision.plugins.plugin_utils.files import Outside, inside, remote

MOST_FILES = 20_000


@contextmanager
def no_file_beyond(size):
    """Let neither this process nor the transfer program that it starts write a file larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class ActionModule(ActionBase):
    """Reads as the login user."""

    TRANSFERS_FILES = False
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Fetch every path of ``files``, relative to the folder ``src`` there, to the same path below ``dest`` here.

        The host chose the names and sends what it likes: every name is checked before the first byte is written.
        """
        result = super().run(tmp, task_vars)
        arguments = node_result.arguments(self)
        names = arguments["files"]
        try:
            if len(names) > MOST_FILES:
                raise Outside(f"{len(names)} files, at most {MOST_FILES} are fetched")
            source = remote(arguments["src"])
            os.makedirs(arguments["dest"], exist_ok=True)
            targets = {name: inside(arguments["dest"], name) for name in names}
            self.fetch(targets, source, arguments["largest_bytes"])
        except Outside as error:
            hint = "The host returned this name: nothing was fetched. The host may be compromised: inspect it."
            result.update(failed=True, msg=f"{error}. {hint}")
            return result
        except (AnsibleError, OSError) as error:
            result.update(failed=True, msg=node_result.one_line(str(error)))
            return result
        result["changed"] = False
        return result

    def fetch(self, targets, source, left):
        """Fetch the files, all of them together no larger than ``left`` bytes. Raises AnsibleError, OSError."""
        for name, target in targets.items():
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with no_file_beyond(max(left, 1)):
                try:
                    self._connection.fetch_file(self._connection._shell.join_path(source, name), target)
                except (AnsibleError, OSError) as error:
                    there = os.path.getsize(target) if os.path.isfile(target) else 0
                    why = f"more than {there} bytes would pass the limit" if there >= left else error
                    raise AnsibleError(f"{name} cannot be fetched: {why}") from error
            left -= os.path.getsize(target)
