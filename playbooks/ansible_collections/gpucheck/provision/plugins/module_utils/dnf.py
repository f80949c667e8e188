"""Install a plan's packages with dnf, and lock their versions."""

import os

from . import dkms, transaction
from .call import Refused, call, wait_for_locks
from .place import write
from .readers.files import text
from .readers.packages import VERSIONLOCK

PLUGIN = "python3-dnf-plugin-versionlock"


def dnf(module, words, seconds):
    """One call of dnf that changes packages; waits so long for another program's lock. Raises Refused."""
    wait_for_locks("rpm", seconds)
    most_s = 0 if "--downloadonly" in words else module.params.get("transaction_timeout_s")
    return call(module, ["dnf", "--assumeyes", "--quiet", *words], shown="dnf", most_s=most_s)


def read_lists(module, repositories, seconds, files=()):  # noqa: ARG001 - as apt's
    """Refresh the lists of these repositories: dnf trusts its cache for up to two days. Raises Refused.

    No other source is read here, so none can fail: an empty list. files: see apt.
    """
    only = [word for repository in repositories for word in ("--repo", repository["name"])]
    dnf(module, ["--refresh", "makecache", *only], seconds)
    return []


def mend(module, host, seconds):
    """Finish an earlier transaction that was interrupted.

    rpm writes the new version before it erases the old one: a power cut in between leaves both in its database, and dnf
    would upgrade or downgrade neither. --nodeps: what needs the erased version is erased with it. The script of the
    package that the cut hit may never have run.
    """
    if host["superfluous"]:
        wait_for_locks("rpm", seconds)
        call(module, ["rpm", "--erase", "--nodeps"] + host["superfluous"])
    if host["unfinished"]:
        dnf(module, ["reinstall"] + host["unfinished"], seconds)


def change_stream(module, wanted, enabled, seconds):
    """Enable the planned stream of a module; restore the previous stream on failure. Raises Refused.

    Whether it is needed is read from dnf's own files: asked to install, dnf answers "nothing to do" while another
    stream stays enabled.
    """
    name = wanted["module"]
    try:
        if enabled is not None:
            dnf(module, ["module", "reset", name], seconds)
        dnf(module, ["module", "enable", "{}:{}".format(name, wanted["stream"])], seconds)
    except Refused as error:
        before = stream_before(module, name, enabled, seconds)
        raise Refused(
            f"The repository has no stream {wanted['stream']} of module {name}, or cannot be read; {before}. {error} "
            f"Check dnf module list {name}; if a mirror lacks the stream: update the mirror, or choose another driver "
            "branch in stack.yml"
        )


def stream_before(module, name, enabled, seconds):
    """Enable the stream that was enabled before, None for none; return the resulting state as text."""
    try:
        if enabled is not None:
            dnf(module, ["module", "enable", f"{name}:{enabled}"], seconds)
    except Refused:
        return f"no stream is enabled now (before: {enabled})"
    return "the stream is unchanged"


def lock_versions(module, add=(), drop=(), path=VERSIONLOCK):
    """Change entries of the version lock's own list, atomically; other entries are kept.

    The list is one entry a line (dnf-plugins-core, versionlock). Raises OSError.
    """
    lines = [line for line in (text(path) or "").splitlines() if line.strip() not in drop]
    lines += [entry for entry in add if entry not in lines]
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    write(module, path, "".join(line + "\n" for line in lines).encode("utf-8"))
    os.chmod(path, mode)


def ground(module, order):
    if not order["stream_planned"]:
        change_stream(module, order["stream"], order["host"]["module_stream"], order["seconds"])
    plugin = [] if order["host"]["versionlock"] else [PLUGIN]
    names = order["prerequisites"] + order["compilers"] + plugin
    if names:
        # If a local mirror carries dkms itself there is no release package of a repository with it, and none is needed:
        # the transaction fails with an error if dkms is missing nevertheless.
        words = [*dkms.enabling(order["dkms_source"]), "--setopt=strict=0", "install", *names]
        dnf(module, words, order["seconds"])
    dkms.supply(module, order["dkms_source"], lambda words: dnf(module, words, order["seconds"]))


def installation(order):
    options = ["--allowerasing", "--setopt=install_weak_deps=False", "--setopt=keepcache=1"]
    return [*dkms.enabling(order["dkms_source"]), *options, "install", *order["specs"]]


def prepare(module, order, download):
    """(rows, bytes to download) of the installation; with download, the ground is laid and its packages are fetched.

    Nothing else is installed, removed or locked. Version locks that the installation lifts are ignored here, as all
    are: bring simulates once more with the active ones. Raises Refused; the stream is as it was then.
    """
    ignoring = ["--disableplugin=versionlock"] if order["stale"] else []
    if not download:
        return transaction.dnf_moves(module, ignoring + installation(order))
    ground(module, order)
    try:
        moves, _ = transaction.dnf_moves(module, ignoring + installation(order))
        transaction.guard(moves, order)
        dnf(module, ["--downloadonly", *ignoring, *installation(order)], order["seconds"])
    except Refused:
        if not order["stream_planned"]:
            dnf(module, ["module", "reset", order["stream"]["module"]], order["seconds"])
            stream_before(module, order["stream"]["module"], order["host"]["module_stream"], order["seconds"])
        raise
    return moves, None


def bring(module, order):
    """Install order's packages in one transaction. Raises Refused; the version locks are as they were then.

    order: of planned_packages. Locks are lifted only around the transaction: without them a host would move by itself.
    """
    mend(module, order["host"], order["seconds"])
    ground(module, order)
    if order["stale"]:
        lock_versions(module, drop=order["stale"])
    try:
        if order["specs"]:
            transaction.guard(transaction.dnf_moves(module, installation(order))[0], order)
            dnf(module, installation(order), order["seconds"])
    except Refused:
        if order["stale"]:
            lock_versions(module, add=order["stale"])
        raise
