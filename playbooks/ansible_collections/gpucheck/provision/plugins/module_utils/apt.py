"""Install a plan's packages with apt, and hold them."""

import contextlib
import os
import re
import shutil
import tempfile

from . import kept, transaction
from .call import Refused, attempt, call, last_words, wait_for_locks
from .credentials import masked
from .host import dpkg_packages

# A file that a person changed stays as it is.
KEEP = ["--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold"]
MOVE = ["--allow-downgrades", "--allow-change-held-packages"]
# How apt-get reports a list that it did not get: the address, without its last slash, and in the next line why.
UNREAD = re.compile(r"^Err:\d+ (?P<url>\S+).*\n(?P<why>.*)", re.MULTILINE)
UPDATE = ["apt-get", "--quiet", "--option", "Acquire::Retries=2"]
PREFERENCES = "/etc/apt/preferences.d"
PIN = "nvidia-driver-pinning-"


def apt_get(module, words, seconds):
    """One call of apt-get that changes packages; waits so long for another program's lock. Raises Refused.

    A package's script may hang. A download has no deadline.
    """
    wait_for_locks("dpkg", seconds)
    # For programs that take the lock between the check and apt's start.
    patience = ["--option", f"DPkg::Lock::Timeout={seconds}"]
    most_s = 0 if "--download-only" in words else module.params.get("transaction_timeout_s")
    # In a terminal of its own, dpkg would outlive apt at the deadline. Its output is in messages instead of term.log.
    patience += ["--option", "Dpkg::Use-Pty=0"]
    return call(module, ["apt-get", "--yes", "--quiet", *KEEP, *patience, *words], shown="apt-get", most_s=most_s)


def read_lists(module, repositories, seconds, files=()):
    """Read the lists of the planned sources, then those of all; a sentence for each other source that failed.

    files: the files that name the planned sources. Of a source that cannot be reached apt keeps the old list and
    reports success; one whose key has expired makes it fail. Neither is a reason to stop if the source is not the
    plan's. Raises Refused for a planned source.
    """
    wait_for_locks("dpkg", seconds)
    for path in files:
        options = ["Dir::Etc::sourcelist=" + path, "Dir::Etc::sourceparts=-", "APT::Get::List-Cleanup=0"]
        words = [word for option in options for word in ("--option", option)]
        output = call(module, [*UPDATE, *words, "update"], shown="apt-get update")
        for url, why in unread(output):
            raise Refused(f"apt-get update: {url}: {why}")
    status, output, errors = attempt(module, [*UPDATE, "update"])
    planned = tuple(repository["url"].rstrip("/") + "/" for repository in repositories)
    failed = [(url, why) for url, why in unread(output) if not (url + "/").startswith(planned)]
    if status != 0 and not failed:
        return [f"apt-get update: exit {status}: {last_words(errors, output)}"]
    return [f"{masked(url)}: {why}" for url, why in failed]


def unread(output):
    """(address, reason) of each list that apt-get update did not get."""
    return [(error.group("url"), error.group("why").strip()) for error in UNREAD.finditer(output)]


def transact(module, words, order):
    """One call of apt-get, after a simulation of it that removes and downgrades nothing foreign. Raises Refused."""
    # Another program's transaction, half done, would be read as a broken state.
    wait_for_locks("dpkg", order["seconds"])
    transaction.guard(transaction.apt_moves(module, words), order)
    apt_get(module, words, order["seconds"])


def mend(module, order):
    wait_for_locks("dpkg", order["seconds"])
    # 1: some package cannot be configured by itself, because what it needs was not unpacked yet. What follows is what
    # repairs that, and fails with apt's own error message if it cannot.
    most_s = module.params.get("transaction_timeout_s")
    call(module, ["dpkg", "--configure", "-a", "--force-confold"], accept=(0, 1), most_s=most_s)
    # apt installs nothing while relations are broken, and repairs them only when it is asked for nothing else. What
    # that removes or moves, the transaction brings to the plan.
    transact(module, ["--fix-broken", "--no-install-recommends", *MOVE, "install"], order)


@contextlib.contextmanager
def preferences(module, order):
    """Options that have apt see the preferences as the installation will: the planned ones, without order's pins."""
    planned = [row for row in order["files"] if os.path.dirname(row["path"]) == PREFERENCES and "content" in row]
    if not planned and not order["pins"]:
        yield []
        return
    owned = call(module, ["dpkg-query", "--listfiles", *order["pins"]]).splitlines() if order["pins"] else []
    folder = tempfile.mkdtemp(prefix="gpucheck-preferences-")
    try:
        os.chmod(folder, 0o755)  # noqa: S103 - apt reads it as a user of its own, and versions are no secret
        for name in sorted(os.listdir(PREFERENCES)) if os.path.isdir(PREFERENCES) else []:
            path = os.path.join(PREFERENCES, name)
            if path not in owned and os.path.isfile(path):
                shutil.copyfile(path, os.path.join(folder, name))
        for row in planned:
            with open(os.path.join(folder, os.path.basename(row["path"])), "w", encoding="utf-8") as file:
                file.write(row["content"])
        yield ["--option", "Dir::Etc::PreferencesParts=" + folder]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def planned_words(module, order):
    with preferences(module, order) as options:
        lifted = ["--ignore-hold"] if order["host"]["unplanned"]["held"] + order["stale"] else []
        words = [*options, *lifted, "--no-install-recommends", *MOVE, "install"]
        yield words + order["compilers"] + order["specs"] + [name + "-" for name in order["pins"]]


def prepare(module, order, download):
    """(rows of what the installation would do, bytes to download); with download, they are fetched. Raises Refused.

    Nothing is installed, removed, held or let go of. If bring lifts holds, all are ignored here: it simulates once more
    with those that remain.
    """
    if download:
        wait_for_locks("dpkg", order["seconds"])
    with planned_words(module, order) as words:
        moves = transaction.apt_moves(module, words)
        if download:
            transaction.guard(moves, order)
            apt_get(module, ["--download-only", *words], order["seconds"])
        return moves, None if download else transaction.apt_download_bytes(module, words)


def bring(module, order):
    """Install order's packages in one transaction, and hold them. Raises Refused; the holds are as they were then.

    order: of planned_packages. The holds of kept packages stay in place: an option lets apt move them, so an
    interruption never leaves a host without them. What goes is let go of first: the resolver takes no held package away
    for one that conflicts with it.
    """
    try:
        if not (order["host"]["unfinished"] and planned_through(module, order)):
            step_by_step(module, order)
    except Refused:
        loose = order["host"]["unplanned"]["held"] + order["stale"]
        installed = dpkg_packages()[0] if loose else {}
        still_there = [name for name in loose if name in installed]
        if still_there:
            call(module, ["apt-mark", "hold", *still_there])
        raise
    if order["holds"]:
        call(module, ["apt-mark", "hold"] + order["holds"])


def planned_through(module, order):
    """Install over unfinished packages of the plan; False if that fails, and they must be mended first.

    All in one transaction: any other call of apt-get would run the script that fails once more.
    """
    if not plans_through(module, order):
        return False
    try:
        with planned_words(module, order) as words:
            transact(module, words, order)
    except Refused:
        # dpkg asks for it if its own journal was cut off, for example.
        return False
    return True


def settle(module, order):
    """Have dpkg write its journal into its database, the only one that apt reads, and configure nothing."""
    if order["host"].get("unfinished") and not module.check_mode:
        wait_for_locks("dpkg", order["seconds"])
        call(module, ["dpkg", "--triggers-only", "-a"], accept=(0, 1))


def plans_through(module, order):
    """Whether the transaction installs, replaces or removes every package that is unfinished on the host.

    Then it is what finishes them: a package whose script fails cannot be configured, but it can be replaced.
    """
    settle(module, order)
    try:
        with planned_words(module, order) as words:
            moves = transaction.apt_moves(module, words)
    except Refused:
        return False
    return set(order["host"]["unfinished"]) <= {row.name for row in moves} | {kept.name_of(word) for word in words}


def step_by_step(module, order):
    """The compilers, which DKMS needs in the transaction; holds and what pins another driver; all others."""
    if order["host"]["unfinished"]:
        mend(module, order)
    if order["compilers"]:
        words = ["--no-remove", "--no-install-recommends", "install"]
        apt_get(module, words + order["compilers"], order["seconds"])
    # While it is there: apt-mark does not know a package that is neither installed nor in a list.
    loose = order["host"]["unplanned"]["held"] + order["stale"]
    if loose:
        call(module, ["apt-mark", "unhold", *loose])
    if order["pins"]:
        transact(module, ["--allow-change-held-packages", "remove"] + order["pins"], order)
    if order["specs"]:
        transact(module, ["--no-install-recommends"] + MOVE + ["install"] + order["specs"], order)
