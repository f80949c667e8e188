#!/usr/bin/python
"""Record on the host what gpucheck installs on it, so that it can be rolled back or removed."""

import base64
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import adopt, boot, engines, host_plan, kept, kernel, options, record
from ..module_utils.compare import compare
from ..module_utils.credentials import SECRET_MODE, mode_for
from ..module_utils.host import lock_name, read_facts
from ..module_utils.package_repository import key_fingerprints, paths, pins, planned
from ..module_utils.place import as_bytes, stored, write
from ..module_utils.readers.files import Unreadable


def begin(module, plan, extras):
    """Note packages and files from before; True where something was noted."""
    changed = False
    baseline = stored(record.BASELINE)
    recorded = host_plan.recorded_plan()
    managed = set(record.planned_paths(recorded)) if recorded else set()
    files = dict(baseline.get("files", {}))
    for path in record.planned_paths(plan):
        if path not in files:
            files[path] = None if path in managed else record.kept(path)
    adopted = adopt.found(plan["repositories"])[0]
    files.update({path: record.kept(path) for path in adopted})
    stream = plan["module_stream"]
    wanted = {
        "schema": "gpucheck.baseline/1",
        "files": files,
        "keys": baseline.get("keys", extras["keys"]),
        "adopted": dict(baseline.get("adopted", {}), **adopted),
    }
    # Not before a plan has one: with driver: keep, it is no stream of gpucheck.
    if "stream" in baseline:
        wanted["stream"] = baseline["stream"]
    elif stream:
        wanted["stream"] = host_plan.enabled_stream(stream["module"]) or ""
    if wanted != baseline:
        write(module, record.BASELINE, as_bytes(wanted), SECRET_MODE)
        changed = True
    if not os.path.exists(record.TRANSACTION):
        # Packages that gpucheck installed earlier stay recorded as such.
        write(module, record.TRANSACTION, as_bytes({"packages": sorted(extras["packages"])}))
        changed = True
    return changed


def leftovers(plan, holds, extras):
    baseline = stored(record.BASELINE)
    recorded = host_plan.recorded_plan()
    gone = record.leftovers(plan, extras["packages"], extras["family"], recorded)
    return {
        "packages": gone,
        "held": sorted(set(gone) & set(holds)),
        "services": options.unneeded_services(recorded, plan),
        "paths": record.left_files(plan),
        "engines": engines.to_undo(plan),
        "locks": record.left_locks(plan, extras["locks"], lock_name, extras["packages"]),
        "keys": our_keys(recorded, baseline.get("keys", []), extras["keys"]),
        "stream": baseline.get("stream", ""),
        "kernel_holds": kernel.noted(),
        "kernel_arguments": [word for words in boot.noted() for word in words],
    }


def our_keys(plan, before, trusted):
    """The last eight hex digits, as rpm names keys, of those that the recorded plan's repositories are signed with.

    before, trusted: fingerprints that rpm trusted earlier, as an older record their last eight digits; and does now.
    """
    rows = planned(plan) if plan else []
    known = {one for row in rows for one in key_fingerprints(paths(row)[1]) + pins(row["key_fingerprint"])}
    present = known & set(trusted)
    return sorted({one[-8:].lower() for one in present if not {one, one[-8:].lower()} & set(before)})


def restore(module, names):
    """Remove managed files, or restore what they replaced; return True if there was one.

    They are no longer managed then. In this order: an interrupted run restores them once more, and never
    removes a restored file.
    """
    baseline = stored(record.BASELINE)
    files = dict(baseline.get("files", {}))
    changed = False
    for path in names:
        before = files.pop(path, None)
        if before is not None:
            write(module, path, base64.b64decode(before["content"]), before["mode"])
            changed = True
        elif os.path.exists(path):
            unlink(path)
            changed = True
    if names:
        installed = stored(record.INSTALLED)
        left = [path for path in installed.get("paths", []) if path not in names]
        if left != installed.get("paths", []):
            write(module, record.INSTALLED, as_bytes(dict(installed, paths=left)))
        adopted = {path: url for path, url in baseline.get("adopted", {}).items() if path not in names}
        write(module, record.BASELINE, as_bytes(dict(baseline, files=files, adopted=adopted)), SECRET_MODE)
    return changed


def unlink(path):
    """Remove a file, and the directory of a unit's drop-ins with the last of them."""
    os.unlink(path)
    folder = os.path.dirname(path)
    if folder.endswith(".service.d") and not os.listdir(folder):
        os.rmdir(folder)


def finish(module, plan, digest, packages):
    recorded = host_plan.recorded_plan()
    planned = record.planned_names(plan)
    document = {
        "schema": "gpucheck.installed/1",
        "group": plan["group"],
        "packages": {name: packages[name] for name in sorted(planned & set(packages))},
        "added": sorted(record.added(packages, recorded, replaced=True)),
        "holds": sorted(record.planned_holds(plan) | host_plan.along(plan, packages)),
        "paths": sorted(record.planned_paths(plan)),
        "gpucheck": digest,
    }
    changed = False
    if document != stored(record.INSTALLED):
        write(module, record.INSTALLED, as_bytes(document))
        changed = True
    if recorded != plan:
        if recorded and not record.same_set(recorded, plan):
            write(module, record.PREVIOUS, as_bytes(recorded), mode_for(recorded))
        # With credentials in it only root reads it: rolling back needs them.
        write(module, host_plan.STACK_FILE, as_bytes(plan), mode_for(plan))
        changed = True
    if os.path.exists(record.TRANSACTION):
        os.unlink(record.TRANSACTION)
        changed = True
    return changed


def main():
    """Run one of the four; with finish, also return what still differs from the plan: it is not compared again."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["begin", "leftovers", "restore", "finish"], "required": True},
            "plan": {"type": "dict", "required": True},
            "paths": {"type": "list", "elements": "str", "default": []},
            "digest": {"type": "str", "default": ""},
            "keep_gib": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    state, plan, answer = module.params["state"], module.params["plan"], {}
    try:
        facts, extras = known = read_facts("host")
        if state == "leftovers":
            module.exit_json(changed=False, **leftovers(plan, facts["holds"], extras))
        if module.check_mode:
            module.exit_json(changed=False)
        if state == "begin":
            changed = begin(module, plan, extras)
        elif state == "restore":
            changed = restore(module, module.params["paths"])
        else:
            digest = module.params["digest"]
            before = stored(record.PREVIOUS)
            changed = finish(module, plan, digest, extras["packages"])
            names, other_set = stored(record.INSTALLED).get("added", []), before != stored(record.PREVIOUS)
            kept.keep(names, extras["packages"], other_set, int(module.params["keep_gib"] * (1 << 30)))
            answer["differences"] = compare("host", plan, digest, known)["differences"]
    except Unreadable as error:
        module.fail_json(msg=f"this host cannot be read: {error}")
    except OSError as error:
        hint = "Free space there, or mount it writable, then run again."
        module.fail_json(msg=f"the record of what is installed cannot be written: {error}. {hint}")
    module.exit_json(changed=changed, **answer)


if __name__ == "__main__":
    main()
