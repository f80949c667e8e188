#!/usr/bin/python
"""Collect packages and all that they need into a folder, with the host's own package manager and nothing installed."""

DOCUMENTATION = r"""
module: bundle_packages
short_description: Collect packages with all that they need, and install nothing
description:
  - The host's package manager resolves, downloads and checks the packages against the signed lists of their sources, as
    before an installation, on a state of its own below one folder. The host stays as it is.
  - Packages that provisioning brought count as not installed, so a provisioned host gives the same as a bare one.
options:
  folder: {type: path, required: true, description: "Where everything is written. The signing keys of the sources, which
    have to be the pinned ones, go into its folder keys."}
  package_manager: {type: str, choices: [apt, dnf], required: true, description: The host's package manager.}
  wanted: {type: list, elements: str, required: true, description: "Packages with their versions, as the package manager
    takes them."}
  optional: {type: list, elements: str, default: [], description: Packages that are taken along where a source offers
    them.}
  prerequisites: {type: list, elements: str, default: [], description: "Packages that bring further sources
    (epel-release), used where one offers them and not taken along."}
  repositories: {type: list, elements: dict, required: true, description: The plan's sources.}
  files: {type: list, elements: dict, default: [], description: The plan's files; the pins among them count.}
  module_stream: {type: dict, description: "The plan's module stream, for dnf."}
  base: {type: str, choices: [host, empty], default: host, description: "Packages assumed to be installed, those of this
    host before provisioning (host), or none (empty)."}
  python: {type: str, default: python3, description: The interpreter that gpucheck will run on.}
notes:
  - Why this module exists. M(ansible.builtin.apt) and M(ansible.builtin.dnf) download on the state of the host; this
    resolves on a separate state.
author: gpucheck
"""

RETURN = r"""
packages: {returned: success, type: list, elements: dict, description: "Name, version, arch, file, sha256 and bytes of
  every package; the files are in the folder packages."}
not_offered: {returned: success, type: list, elements: str, description: Optional packages that no source offers.}
modules: {returned: success, type: list, elements: str, description: "Files with the module metadata of the sources,
  relative to the folder."}
metadata: {returned: success, type: list, elements: str, description: "The sources' signed lists and keys, relative to
  the folder; the controller checks the packages with them."}
python: {returned: success, type: dict, description: "Version, glibc and machine of the interpreter."}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import bundle
from ..module_utils.bundle import fetch_keys, interpreter
from ..module_utils.host import read_facts
from ..module_utils.readers.files import Unreadable
from ..module_utils.readers.system import os_release


def main():
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
            "wanted": {"type": "list", "elements": "str", "required": True},
            "optional": {"type": "list", "elements": "str", "default": []},
            "prerequisites": {"type": "list", "elements": "str", "default": []},
            "repositories": {"type": "list", "elements": "dict", "required": True},
            "files": {"type": "list", "elements": "dict", "default": []},
            "module_stream": {"type": "dict"},
            "base": {"type": "str", "choices": ["host", "empty"], "default": "host"},
            "python": {"type": "str", "default": "python3"},
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    request = dict(module.params, releasever=os_release().get("VERSION_ID", "").partition(".")[0])
    collect = bundle.collect_apt if module.params["package_manager"] == "apt" else bundle.collect_dnf
    try:
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o755)  # noqa: S103 - packages are no secret, and the login that fetches them is not root
        fetch_keys(module, folder, request["repositories"])
        answer = collect(folder, request, read_facts("host")[1]["packages"])
        answer["python"] = interpreter(module.params["python"])
    except Unreadable as error:
        hint = "Nothing was installed. Check that this host reaches its sources, and that they have these versions."
        module.fail_json(msg="the packages cannot be collected: {}. {}".format(str(error).strip().rstrip("."), hint))
    except OSError as error:
        module.fail_json(msg="the packages cannot be collected: {}. Free space there, then run again.".format(error))
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
