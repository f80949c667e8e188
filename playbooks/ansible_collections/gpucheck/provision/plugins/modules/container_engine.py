#!/usr/bin/python
"""Configure container engines for the NVIDIA runtime, and revert it."""

import base64
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import engines
from ..module_utils.place import as_bytes, write
from ..module_utils.record import kept

TOOL = "nvidia-ctk"


def note(module, files):
    if files:
        write(module, engines.RECORD, as_bytes({"schema": "gpucheck.engines/1", "files": files}))
    elif os.path.exists(engines.RECORD):
        os.unlink(engines.RECORD)


def configure(module, row):
    files = engines.recorded()
    # Recorded first: an interrupted run can still be reverted.
    for path in row["files"]:
        entry = files.setdefault(path, {"before": kept(path)})
        # Another program has replaced what was written here: its file is the one to restore.
        if entry.get("after") not in (None, engines.digest(path)):
            entry["before"] = kept(path)
        entry.update(after=None, service=row["service"], action=row["action"])
    note(module, files)
    argv = [TOOL, "runtime", "configure", "--runtime", row["name"]]
    status, _, errors = module.run_command(argv)
    if status:
        module.fail_json(msg="{}: exit {}: {}".format(" ".join(argv), status, " ".join(errors.split())))
    for path in row["files"]:
        files[path]["after"] = engines.digest(path)
    note(module, files)


def undo(module, path, entry):
    """Revert one file: return a sentence if it needs a manual change, else None."""
    before = entry["before"]
    if engines.digest(path) != entry["after"] and os.path.exists(path):
        return f"{path} was changed since: remove the runtime {engines.RUNTIME} by hand"
    if before is not None:
        write(module, path, base64.b64decode(before["content"]), before["mode"])
    elif os.path.exists(path):
        os.unlink(path)
    return None


def active(module, pairs):
    """Those of the (service, action) pairs that run: what does not run reads its configuration when it starts."""
    running = [pair for pair in pairs if module.run_command(["systemctl", "is-active", "--quiet", pair[0]])[0] == 0]
    return [{"service": service, "action": action} for service, action in running]


def make_present(module, plan):
    missing = engines.state(plan)["missing"]
    rows = [row for row in engines.here(plan) if row["name"] in missing]
    for row in rows if not module.check_mode else []:
        configure(module, row)
        if not engines.knows_runtime(row):
            files = " ".join(row["files"])
            module.fail_json(
                msg=f"{TOOL} reported success, and {files} still does not name the runtime {engines.RUNTIME}"
            )
    written = [path for row in rows for path in row["files"]]
    return written, active(module, [(row["service"], row["action"]) for row in rows]), []


def make_absent(module, plan):
    files, left = engines.recorded(), []
    paths = engines.to_undo(plan)
    pairs = sorted({(files[path]["service"], files[path]["action"]) for path in paths})
    for path in paths if not module.check_mode else []:
        message = undo(module, path, files.pop(path))
        left += [message] if message else []
        note(module, files)
    return paths, active(module, pairs), left


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "required": True},
            "plan": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    step = make_present if module.params["state"] == "present" else make_absent
    try:
        written, services, left = step(module, module.params["plan"])
    except (OSError, ValueError) as error:
        hint = "Nothing else was changed. Correct that file, or set container_engines to leave in stack.yml."
        module.fail_json(msg=f"the configuration of a container engine: {error}. {hint}")
    module.exit_json(changed=bool(written), written=written, services=services, left=left)


if __name__ == "__main__":
    main()
