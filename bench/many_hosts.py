"""What one controller takes for many hosts that are stubs: each answers every module at once, with facts of a lab host.

Ansible, the playbooks, the plugins and the resolver are real; there is no SSH and no host. The stubs' own processes are
in the CPU time. usage: python bench/many_hosts.py [HOSTS=500]
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def main() -> None:
    from tests.playbooks.hostile import ANSIBLE, BIN, Site, report
    from tests.playbooks.modules import PLAYBOOKS

    count = int(sys.argv[1]) if sys.argv[1:] else 500
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "site"
        site = Site(folder, report("node"))
        for number in range(count):
            site.host(f"node{number:04}")
        # Writes the inventory.
        site.run("check.yml", "--list-hosts")
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_REMOTE_TMP": str(folder / "tmp/remote"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        runs = (
            ("read, planned and compared (make plan)", "provision.yml", "--check"),
            ("one change on each host, and verified", "provision.yml"),
            ("verified", "verify.yml"),
        )
        for label, playbook, *options in runs:
            words = [ANSIBLE, "-i", f"{folder}/hosts.json", "-e", f"reports_dir={folder}/out/reports", *options]
            measure = [sys.executable, str(ROOT / "bench/_controller.py"), label, str(count)]
            subprocess.run([*measure, *words, str(PLAYBOOKS / playbook)], cwd=folder, env=environment, check=False)


if __name__ == "__main__":
    main()
