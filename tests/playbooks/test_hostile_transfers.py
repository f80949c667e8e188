"""Hosts that lie while files travel over SSH, by each way that Ansible has: no name of theirs reaches the controller.

sftp reads its commands from a batch, where a line break ends a command and ``!`` begins one for a local shell; scp and
dd have a shell at the other end. What the controller alone can do has a name that only its environment knows.
"""

import json
import re
from itertools import product
from typing import Any

import pytest
import yaml

from tests.playbooks.hostile import Site
from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.ssh_host import METHODS
from tests.playbooks.test_hostile_node import CONTROL
from tests.shared import sampled

RUN = 'touch "$CANARY"'
# One command of sftp's batch after another; the end of a name; what a shell or Ansible would expand.
TAILS = {
    "line-break": f"\n!{RUN}\n",
    "quote-and-line-break": f"a\\'\"\n!{RUN}\n",
    "quote-and-target": "a\\'\" FOLDER/PWNED #",
    "carriage-return": f"\r!{RUN}\r",
    "unicode-line": f"\u2028!{RUN}\u2029!{RUN}\x85",
    "shell": f"$({RUN})`{RUN}`;{RUN};",
    "template": "{{ lookup('pipe', 'touch FOLDER/PWNED') }}",
    "option": "-oProxyCommand=touch FOLDER/PWNED",
    "up": "/../../../../../../FOLDER/PWNED",
    "long": "x" * 70_000,
}
PACKAGE = {"name": "a", "version": "1", "arch": "amd64", "file": "libnccl2.deb", "sha256": "0" * 64, "bytes": 3}
COLLECTED = {"changed": False, "packages": [PACKAGE], "not_offered": [], "modules": [], "metadata": [],
             "python": {"version": "3.11", "glibc": "2.36", "machine": "x86_64"}}  # fmt: skip
MISSING = {"changed": False, "missing": ["packages/liba.deb"], "missing_bytes": 1, "free_bytes": 1}
NOTHING = {**MISSING, "missing": [], "missing_bytes": 0}
SOUND = {"bundle_packages": COLLECTED, "bundle_folder": [MISSING, NOTHING],
         "stat": "REALLY", "copy": ["REALLY", {"changed": False}]}  # fmt: skip
FIRST = (
    *("folder-quote-and-line-break", "folder-quote-and-target", "folder-shell", "file-quote-and-line-break", "noise"),
    *("missing-line-break", "message-template", "file-is-link", "temporary-folder-quote-and-target"),
)
PARTS = 4
# Hosts that have nothing to fetch, by the start of their names.
REFUSED = (*(f"file-{name}" for name in TAILS), "folder-", "message-")
# What the login shell prints where Ansible asks for the name of the temporary folder that it just created there.
LYING = 'case "$SSH_ORIGINAL_COMMAND" in *mkdir*) printf "%s" {words}; exit 0;; esac'


def hostile() -> dict[str, dict[str, Any]]:
    """By host, its answers; brings: what lies in its folder, a link as a tuple; shell: as in Site.host."""
    cases: dict[str, dict[str, Any]] = {}
    for name, tail in TAILS.items():
        cases[f"folder-{name}"] = {"command": {"changed": True, "path": f"/var/tmp/{tail}"}}
        cases[f"file-{name}"] = {"bundle_packages": {**COLLECTED, "packages": [{**PACKAGE, "file": tail}]}}
        cases[f"missing-{name}"] = {"bundle_folder": [{**MISSING, "missing": [f"packages/{tail}"]}, NOTHING]}
        cases[f"message-{name}"] = {"bundle_packages": {"failed": True, "msg": tail}}
    cases["file-glob"] = {"bundle_packages": {**COLLECTED, "packages": [{**PACKAGE, "file": "*[a-z]?.deb"}]}}
    cases["file-and-folder"] = {"bundle_packages": {**COLLECTED, "modules": ["packages", "packages/libnccl2.deb"]}}
    cases["file-is-link"] = {"brings": {"packages/libnccl2.deb": ("/etc/hostname",)}}
    cases["file-is-folder"] = {"brings": {"packages/libnccl2.deb/x": "x"}}
    cases["folder-is-link"] = {"brings": {"packages": ("/etc",)}}
    cases["file-is-gone"] = {"brings": {}}
    cases["noise"] = {"shell": f"echo '{{\"changed\": true, \"x\": 1}}'; echo '!{RUN}'"}
    for name in ("line-break", "quote-and-target", "shell"):
        words = "'FOLDER/tmp/" + TAILS[name].replace("'", "'\\''") + "'"
        cases[f"temporary-folder-{name}"] = {"shell": LYING.format(words=words)}
    return cases


def plays(site: Site) -> str:
    """The project's own tasks that transfer: those of a collecting host, and those of a host that gets its share."""
    (block,) = yaml.safe_load((PLAYBOOKS / "tasks/bundle_collect.yml").read_text())
    steps = ("gpucheck.provision.bundle_packages", "ansible.builtin.assert", "ansible.builtin.fetch")
    folder = {"ansible.builtin.import_tasks": str(PLAYBOOKS / "tasks/transfer_folder.yml")}
    block["block"] = [folder, *(task for task in block["block"] if any(step in task for step in steps))]
    block["vars"] = {
        **{name: block["vars"][name] for name in ("bundle_plain", "bundle_paths")},
        "bundle_folder_here": f"{site.folder}/out/build/{{{{ inventory_hostname }}}}",
        "bundle_order": {"wanted": [], "optional": [], "repositories": []},
        "host_plan": {"package_manager": "apt", "module_stream": {}, "prerequisites": [], "files": []},
    }
    source = {"source": f"{site.folder}/stack.yml", "sha256": "0" * 64, "bytes": 1}
    target = {"dest": f"{site.folder}/hosts/none/x", "mode": "0644"}
    copied = {"ansible.builtin.copy": {"src": f"{site.folder}/stack.yml", **target}}
    play = {
        "hosts": "gpu",
        "gather_facts": False,
        "vars_files": [str(PLAYBOOKS / "vars/outcome.yml")],
        "vars": {"bundle_place": "/nowhere", "bundle_files": {"packages/liba.deb": source}},
        "tasks": [block, {"ansible.builtin.import_tasks": str(PLAYBOOKS / "tasks/bundle_send.yml")}, copied],
    }
    controller = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": {"bundle_manifest": {"made": "2026-11-28T00:00:00+00:00"}}}],
    }
    return yaml.safe_dump([controller, play])


@pytest.mark.slow
@pytest.mark.parametrize(("part", "method"), sampled(product(range(PARTS), METHODS), (0,)))
def test_no_name_of_a_host_reaches_a_transfer(tmp_path, part, method):
    """The first part has a host of each kind."""
    site = Site(tmp_path, {}, method=method)
    cases = hostile()
    rest = [name for name in cases if name not in FIRST]
    names = rest[part - 1 :: PARTS - 1] if part else FIRST
    chosen = json.loads(json.dumps({name: cases[name] for name in names}).replace("FOLDER", str(tmp_path)))
    for name, answers in chosen.items():
        brings = answers.pop("brings", None)
        site.host(name, **{**SOUND, **answers})
        if brings is not None:
            site.bring(name, brings)
    site.host("good", **SOUND)
    (tmp_path / "play.yml").write_text(plays(site))

    done = site.run(str(tmp_path / "play.yml"), CANARY=str(tmp_path / "PWNED"))

    said = done.stdout + done.stderr
    assert site.stray() == ["play.yml"]
    assert not (tmp_path / "PWNED").exists()
    assert not CONTROL.search(said), ascii(CONTROL.search(said))
    fetched = {path.parts[-3]: path for path in (tmp_path / "out/build").rglob("*.deb")}
    assert all(path.is_file() and not path.is_symlink() for path in fetched.values())
    # Ansible's piped transfer leaves an empty file for one that the host does not have.
    assert not {name for name, path in fetched.items() if name.startswith(REFUSED) and path.stat().st_size}
    assert fetched["good"].read_text() == "deb"
    assert site.asked("good", "arrived")[-1] == "packages:liba.deb"
    assert re.search(r"good +: ok=\d+ .* failed=0 ", said)
