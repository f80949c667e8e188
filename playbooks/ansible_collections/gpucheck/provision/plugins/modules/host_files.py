#!/usr/bin/python
"""Put several managed files onto a host, or remove them, in one round trip: copy takes three for each file."""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import place


def rows(module):
    """The rows, complete. Fails the task if one is invalid, before anything is changed."""
    try:
        return [place.normal(row) for row in module.params["files"]]
    except ValueError as error:
        module.fail_json(msg=f"a row of files is wrong, nothing was changed: {error}", paths=[])


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
