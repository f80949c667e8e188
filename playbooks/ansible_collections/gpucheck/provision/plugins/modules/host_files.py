#!/usr/bin/python
"""Put several managed files onto a host, or remove them, in one round trip: copy takes three for each file."""

DOCUMENTATION = r"""
module: host_files
short_description: Write and remove several files of a host in one round trip
description:
  - Processes the rows in order. A file is written atomically, with the directories that it lacks (0755).
  - Everything belongs to the user that the module runs as, with become that is root. Owner and permissions are put
    right also where the content is already right.
  - A path directly below / is rejected, so that no row can name an entire system or its /etc.
  - If a row fails, those after it are not started, and the message states what was changed before.
options:
  files: {type: list, elements: dict, required: true, description: "Rows of C(path); C(state), which is present
    (default), directory or absent; C(content) of a file; C(mode), octal in quotes, by default 0644 for a file and 0755
    for a directory. Other keys are ignored. Absent removes a file or a link, never a directory."}
notes:
  - Why this module exists. M(ansible.builtin.copy) and M(ansible.builtin.file) take one round trip per file, and a loop
    does not stop at a failed row.
author: gpucheck
"""

RETURN = r"""
paths: {returned: always, type: list, elements: str, description: "The paths that were, or would be, changed."}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import place


def rows(module):
    """The rows, complete. Fails the task if one is invalid, before anything is changed."""
    try:
        return [place.normal(row) for row in module.params["files"]]
    except ValueError as error:
        module.fail_json(msg="a row of files is wrong, nothing was changed: {}".format(error), paths=[])


def refuse(module, row, error, done):
    verb = "removed" if row["state"] == "absent" else "written"
    before = "changed before it: {}".format(", ".join(done)) if done else "nothing was changed before it"
    hint = "Free space there, mount it writable, or remove what blocks the path, then run again."
    module.fail_json(msg="{} cannot be {}: {}; {}. {}".format(row["path"], verb, error, before, hint), paths=done)


def main():
    module = AnsibleModule(
        argument_spec={"files": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True
    )
    done, shown = [], []
    for row in rows(module):
        try:
            if not place.differs(row):
                continue
            if module._diff:
                shown.append(place.change(row["path"], row["content"]))
            if not module.check_mode:
                place.apply(module, row)
        except OSError as error:
            refuse(module, row, error, done)
        done.append(row["path"])
    module.exit_json(changed=bool(done), paths=done, diff=shown)


if __name__ == "__main__":
    main()
