"""Copy many and large files from a host, each in one transfer: fetch reads a complete file into memory, as root."""

import os
import resource
import shutil
from contextlib import contextmanager, suppress

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..plugin_utils import node_result
from ..plugin_utils.files import Outside, inside, remote

# files: paths relative to src there and to dest here. largest_bytes: of all together. sizes: by path, as stated there.
ARGUMENTS = {
    "src": {"type": "str", "required": True},
    "dest": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "str", "required": True},
    "largest_bytes": {"type": "int", "default": 32 << 30},
    "sizes": {"type": "dict", "default": {}},
}
MOST_FILES = 20_000
# The controller keeps so much disk, whatever hosts send.
RESERVE_BYTES = 1 << 30
# Ansible's piped transfer has a file in memory, with a copy of it. Other files that this process writes are smaller.
COPIES, MEMORY_BYTES, SMALL_BYTES = 3, 64 << 20, 1 << 20


@contextmanager
def nothing_beyond(size):
    """Let neither this process nor the transfer program that it starts write or hold a file larger than this."""
    limits = {resource.RLIMIT_FSIZE: max(size, SMALL_BYTES)}
    # No /proc: not Linux, which may not limit memory so.
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = mapped + COPIES * size + MEMORY_BYTES
    before = {which: resource.getrlimit(which) for which in limits}
    for which, limit in limits.items():
        soft, hard = before[which]
        known = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
        resource.setrlimit(which, (min([limit, *known]), hard))
    try:
        yield
    finally:
        for which, limit in before.items():
            resource.setrlimit(which, limit)


class ActionModule(ActionBase):
    """Reads as the login user."""

    TRANSFERS_FILES = False
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        """Fetch every path of ``files``, relative to the folder ``src`` there, to the same path below ``dest`` here.

        The host chose the names and sends what it likes: every name is checked before the first byte is written.
        """
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        names = arguments["files"]
        try:
            if len(names) > MOST_FILES:
                raise Outside(f"{len(names)} files, at most {MOST_FILES} are fetched")
            source = remote(arguments["src"])
            os.makedirs(arguments["dest"], exist_ok=True)
            targets = {name: inside(arguments["dest"], name) for name in names}
            sizes = {name: stated(arguments["sizes"], name) for name in names}
            self.fetch(targets, source, arguments["largest_bytes"], sizes)
        except Outside as error:
            hint = "The host returned this name: nothing was fetched. The host may be compromised: inspect it."
            result.update(failed=True, msg=f"{error}. {hint}")
            return result
        except (AnsibleError, OSError) as error:
            result.update(failed=True, msg=node_result.one_line(str(error)))
            return result
        result["changed"] = False
        return result

    def fetch(self, targets, source, left, sizes):
        """Fetch the files, none larger than its size and all together no larger than ``left``: bytes, None for any.

        One that is too large is removed. Raises AnsibleError, OSError.
        """
        for name, target in targets.items():
            os.makedirs(os.path.dirname(target), exist_ok=True)
            free = shutil.disk_usage(os.path.dirname(target)).free - RESERVE_BYTES
            limits = {left: "the limit for all files", free: "what the controller has free"}
            if sizes[name] is not None:
                limits[sizes[name]] = "what the host stated"
            most = max(min(limits), 0)
            try:
                with nothing_beyond(most):
                    self._connection.fetch_file(self._connection._shell.join_path(source, name), target)
                if os.path.getsize(target) > most:
                    raise AnsibleError(f"larger than {most} bytes, {limits[min(limits)]}")
                # The transfer takes them from the host.
                os.chmod(target, 0o644)
            except (AnsibleError, OSError, MemoryError) as error:
                there = os.path.getsize(target) if os.path.isfile(target) else 0
                why = error
                if isinstance(error, MemoryError) or there >= max(most, SMALL_BYTES):
                    why = f"larger than {most} bytes, {limits[min(limits)]}"
                with suppress(OSError):
                    os.unlink(target)
                raise AnsibleError(f"{name} cannot be fetched: {why}") from error
            left -= os.path.getsize(target)


def stated(sizes, name):
    """The size of a file as the host stated it, None without one. Raises Outside for what is no size."""
    size = sizes.get(name)
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise Outside(f"{name}: {size!a:.40} is not a size")
    return size
