#!/usr/bin/python
"""Collect packages and all that they need into a folder, with the host's own package manager and nothing installed."""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import bundle
from ..module_utils.bundle import fetch_keys, interpreter
from ..module_utils.host import read_facts
from ..module_utils.readers.files import Unreadable


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
    request = dict(module.params, releasever=bundle.releasever())
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
        module.fail_json(msg=f"the packages cannot be collected: {error}. Free space there, then run again.")
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
