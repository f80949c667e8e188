#!/usr/bin/python
"""Name the planned package repositories on a host, each with its own pinned key, and read their lists."""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import adopt, apt, dnf, host, package_repository, place, record, signing_keys
from ..module_utils.call import Refused
from ..module_utils.credentials import masked
from ..module_utils.readers.files import Unreadable, text

LISTS = {"apt": apt.read_lists, "dnf": dnf.read_lists}


def source_files(repositories, archive):
    found = [row[0] for repository in repositories for row in package_repository.rows(repository)]
    return found + ([archive["path"]] if archive else [])


def take_out(module, paths):
    there = [path for path in paths if os.path.lexists(path)]
    for path in [] if module.check_mode else there:
        place.remove(path)
    return there


def replaced(module, repositories):
    """Source files that planned ones replace, if a record can restore them; in check mode nothing is recorded yet."""
    known = place.stored(record.BASELINE).get("adopted", {})
    return contents([path for path in adopt.found(repositories)[0] if module.check_mode or path in known])


def contents(paths):
    """{path: (content, mode)} of the files that there are."""
    return {path: (place.read(path), os.stat(path).st_mode & 0o7777) for path in paths if os.path.exists(path)}


def withdraw(module, repositories, archive, before):
    """Revert what was written. before: the files of then, of which an unchanged one is not touched."""
    ours = source_files(repositories, archive)
    gone = take_out(module, [path for path in ours if contents([path]).get(path) != before.get(path)])
    for path, (content, mode) in sorted(before.items()):
        # If that fails, the record still has it, and deprovisioning restores it.
        with contextlib.suppress(OSError):
            if not os.path.lexists(path):
                place.put(module, path, content, mode)
    return [path for path in gone if path not in before]


def trust(module, repositories):
    rows = [repository for repository in repositories if repository["kind"] == "dnf"]
    known, done = set(host.rpm_keys() if rows else ()), []
    for repository in rows:
        path = package_repository.paths(repository)[1]
        wanted = set(package_repository.key_fingerprints(path))
        if wanted and wanted <= known:
            continue
        if not module.check_mode:
            module.run_command(["rpm", "--import", path], check_rc=True)
        known |= wanted
        done.append(path)
    return done


def write_keys(module, repositories):
    missing = [repository for repository in repositories if not package_repository.key_as_planned(repository)]
    paths = [package_repository.paths(repository)[1] for repository in missing]
    if module.check_mode:
        return paths
    keys = [
        signing_keys.pinned(module, row["key_url"], package_repository.pins(row["key_fingerprint"])) for row in missing
    ]
    for repository, path, (binary, armored) in zip(missing, paths, keys):
        place.put(module, path, armored if repository["kind"] == "dnf" else binary)
    return paths


def write_sources(module, repositories, archive):
    wanted = [(package_repository.paths(row)[0], row) for row in repositories]
    contents = [
        file
        for path, row in wanted
        if not package_repository.source_as_planned(row, path)
        for file in package_repository.rows(row)
    ]
    if archive.get("content") and (text(archive["path"]) or "") != archive["content"].strip():
        contents.append((archive["path"], archive["content"], 0o644))
    for path, content, mode in [] if module.check_mode else contents:
        place.put(module, path, content.encode("utf-8"), mode)
    gone = take_out(module, [archive["path"]]) if archive and not archive.get("content") else []
    return [path for path, _, _ in contents] + gone


def refused(manager, repositories, archive, error):
    named = ", ".join(
        [masked(row["url"]) for row in repositories] + (["the components of the archive"] if archive else [])
    )
    return (
        "{} rejects the package lists. No package was installed, and what was written for them was removed again: {}. "
        "{}. A wrong signature means that the mirror is broken, incompletely synchronized, or not the publisher's: "
        "check it and its key. If it cannot be reached, check the address in stack.yml. Then run again."
    ).format(manager, named, str(error).rstrip("."))


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
            "repositories": {"type": "list", "elements": "dict", "required": True},
            "archive": {"type": "dict", "default": {}},
            "lock_timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    params = module.params
    name, manager, seconds = params["host"], params["package_manager"], params["lock_timeout_s"]
    repositories, archive = params["repositories"], params["archive"] or {}
    before, there, unread = {}, {}, []
    try:
        there = contents(source_files(repositories, archive))
        before = replaced(module, repositories)
        paths = write_keys(module, repositories)
        paths += [path for path in trust(module, repositories) if path not in paths]
        paths += write_sources(module, repositories, archive) + take_out(module, sorted(before))
        if not module.check_mode:
            # The files that apt reads addresses from: those of source_files without the credentials.
            named = [package_repository.paths(repository)[0] for repository in repositories]
            files = [path for path in named + ([archive["path"]] if archive else []) if os.path.exists(path)]
            unread = LISTS[manager](module, repositories, seconds, files)
    except Unreadable as error:
        module.fail_json(msg=f"{name}: the keys that rpm trusts cannot be read: {error}. No source was added.")
    except Refused as error:
        withdraw(module, repositories, archive, dict(there, **before))
        module.fail_json(msg=f"{name}: {refused(manager, repositories, archive, error)}")
    except OSError as error:
        # A source whose neighbour is missing is no set: half of the packages would come from elsewhere.
        gone = withdraw(module, repositories, archive, dict(there, **before))
        hint = "Free space or mount it writable, then run again."
        words = "removed again: {}".format(", ".join(gone)) if gone else "no source was added"
        module.fail_json(msg=f"{name}: package sources cannot be written: {error}; {words}. {hint}")
    module.exit_json(changed=bool(paths), paths=paths, unread=unread)


if __name__ == "__main__":
    main()
