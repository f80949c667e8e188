"""apt, asked to bring a plan's packages onto a host, and to hold them.

Runs on the managed host: standard library only, Python 3.6 or newer.
"""

import re

from ansible_collections.gpucheck.provision.plugins.module_utils.call import Refused, call, wait_for_locks
from ansible_collections.gpucheck.provision.plugins.module_utils.host import dpkg_packages

# A file that a person changed stays as it is.
KEEP = ["--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold"]
MOVE = ["--allow-downgrades", "--allow-change-held-packages"]
# How apt-get tells of a list that it did not get: the address, without its last slash, and in the next line why.
UNREAD = re.compile(r"^Err:\d+ (?P<url>\S+).*\n(?P<why>.*)", re.MULTILINE)
PIN = "nvidia-driver-pinning-"


def apt_get(module, words, seconds):
    """One call of apt-get that changes packages; waits so long for another program's lock. Raises Refused."""
    wait_for_locks("dpkg", seconds)
    # For who takes the lock between our look and apt's.
    patience = ["--option", "DPkg::Lock::Timeout={}".format(seconds)]
    return call(module, ["apt-get", "--yes", "--quiet", *KEEP, *patience, *words], shown="apt-get")


def read_lists(module, repositories, seconds):
    """Read the lists of all sources. Raises Refused, also where one of these repositories alone does not answer.

    Of a source that cannot be reached apt keeps the old list, and calls that a success.
    """
    wait_for_locks("dpkg", seconds)
    said = call(module, ["apt-get", "--quiet", "--option", "Acquire::Retries=2", "update"], shown="apt-get update")
    ours = tuple(repository["url"].rstrip("/") + "/" for repository in repositories)
    for error in UNREAD.finditer(said):
        if (error.group("url") + "/").startswith(ours):
            raise Refused("apt-get update: {}: {}".format(error.group("url"), error.group("why").strip()))


def mend(module, unfinished, seconds):
    """Finish what a transaction that was cut off left behind."""
    if not unfinished:
        return
    wait_for_locks("dpkg", seconds)
    # 1: some package cannot be configured by itself, because what it needs was not unpacked yet. What follows is what
    # repairs that, and fails with apt's own words where it cannot.
    call(module, ["dpkg", "--configure", "-a", "--force-confold"], accept=(0, 1))
    # apt installs nothing while relations are broken, and repairs them only when it is asked for nothing else. What
    # that takes away or moves, the transaction brings to the plan.
    apt_get(module, ["--fix-broken", "--no-install-recommends", *MOVE, "install"], seconds)


def pins(strays):
    """Of strays, ``name version``, the packages that pin another driver version: they keep the planned one out."""
    return [stray.split()[0] for stray in strays if stray.startswith(PIN)]


def bring(module, order):
    """Install order's packages in one transaction, and hold them. Raises Refused; the holds are as they were then.

    order: of planned_packages. The holds of what stays are left in place: apt is told that it may move, so an
    interruption never leaves a host without them. What goes is let go of first: the resolver takes no held package away
    for one that conflicts with it.
    """
    host, seconds = order["host"], order["seconds"]
    mend(module, host["unfinished"], seconds)
    if order["compilers"]:
        apt_get(module, ["--no-install-recommends", "install"] + order["compilers"], seconds)
    if order["pins"]:
        apt_get(module, ["--allow-change-held-packages", "remove"] + order["pins"], seconds)
    loose = host["unplanned"]["held"]
    if loose:
        call(module, ["apt-mark", "unhold", *loose])
    try:
        if order["specs"]:
            apt_get(module, ["--no-install-recommends"] + MOVE + ["install"] + order["specs"], seconds)
    except Refused:
        installed = dpkg_packages()[0] if loose else {}
        still_there = [name for name in loose if name in installed]
        if still_there:
            call(module, ["apt-mark", "hold", *still_there])
        raise
    if order["holds"]:
        call(module, ["apt-mark", "hold"] + order["holds"])
