#!/usr/bin/python
"""Ask the package sources of a host whether they offer kernel headers. Changes nothing."""

DOCUMENTATION = r"""
module: headers_available
short_description: Ask whether kernel header packages are to be had
description:
  - Asks the package lists that the host has, and where those say no, lists fetched anew into a temporary folder. The
    host's own lists stay as they are.
  - Sources that do not answer make the answer unknown, which is not "missing".
options:
  names:
    description: The packages, without versions.
    type: list
    elements: str
    required: true
  package_manager:
    description: The host's package manager.
    type: str
    choices: [apt, dnf]
    required: true
attributes:
  check_mode:
    description: Asks only, so check mode makes no difference.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Ask for the headers of the running kernel
  headers_available:
    names: [linux-headers-generic]
    package_manager: apt
  become: true
"""

RETURN = r"""
missing:
  description: Packages that no source offers.
  returned: success
  type: list
unknown:
  description: Why it could not be found out, empty where it could.
  returned: success
  type: str
"""

import os  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
import tempfile  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpu_files import Unreadable, command  # noqa: E402


def apt_missing(names, options=()):
    """Names without a candidate in the lists that the options name."""
    told = command(["apt-cache", *options, "policy", *names])
    offered = set()
    for block in re.split(r"(?m)^(?=\S+:$)", told):
        name, _, rest = block.partition(":\n")
        if re.search(r"^\s+Candidate: (?!\(none\))\S", rest, re.MULTILINE):
            offered.add(name)
    return [name for name in names if name not in offered]


def ask_apt(names):
    """Ask the host's lists, then fresh ones. Raises Unreadable where the sources do not answer."""
    if not apt_missing(names):
        return []
    folder = tempfile.mkdtemp(prefix="gpucheck-lists-")
    try:
        # apt fetches as a user of its own, who has to get in.
        os.chmod(folder, 0o755)  # noqa: S103 - lists of packages are no secret
        os.makedirs(os.path.join(folder, "partial"))
        options = ["-o", "Dir::State::lists=" + folder, "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        command(["apt-get", *options, "-o", "APT::Update::Error-Mode=any", "-o", "APT::Sandbox::User=root", "update"])
        return apt_missing(names, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ask_dnf(names):
    """Ask the enabled repositories. Raises Unreadable where they do not answer."""
    told = command(["dnf", "--quiet", "repoquery", "--queryformat", "%{name}\n", *names])
    offered = set(told.split())
    # kernel-devel-5.14.0-503.el9.x86_64 is asked for by name and version, and answered by name.
    return [name for name in names if not any(name == seen or name.startswith(seen + "-") for seen in offered)]


def main():
    """Ask, answer."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
        },
        supports_check_mode=True,
    )
    names = module.params["names"]
    try:
        missing, unknown = (ask_apt if module.params["package_manager"] == "apt" else ask_dnf)(names), ""
    except Unreadable as error:
        missing, unknown = [], str(error)
    module.exit_json(changed=False, missing=missing, unknown=unknown)


if __name__ == "__main__":
    main()
