"""proxy_env: known to every step of a host that fetches something, and to no program of the scheduler."""

import json
from pathlib import Path

import pytest

from tests.playbooks.hostile import Site, state
from tests.playbooks.stubs import script

PROXY = "http://alice:T0K3N@proxy.example:3128"
NOTE = """folder = os.path.dirname(os.path.realpath(__file__))
PROXIED = os.environ.get("https_proxy", "-")
"""


@pytest.mark.more
@pytest.mark.slow
def test_steps_that_fetch_know_the_proxy_and_the_scheduler_does_not(tmp_path):
    differs = state({"repository": ["x"], "driver": ["x"]})
    differs["host"].update(wrong_files=[], headers_missing=[], modules_packages=[], space=[])
    site = Site(tmp_path, {})
    site.host("node01", plan_state=differs)
    python = Path(site.hosts["node01"]["ansible_python_interpreter"])
    python.write_text(
        python.read_text()
        .replace("folder = os.path.dirname(os.path.realpath(__file__))\n", NOTE)
        .replace('file.write(name + "\\n")', 'file.write(name + "=" + PROXIED + "\\n")')
    )
    drain = script(tmp_path / "drain", f"#!/bin/sh\necho $* ${{https_proxy:-none}} >>{tmp_path}/drained\n")
    choice = {"proxy_env": {"https_proxy": PROXY}, "drain_with": "script", "drain_command": [drain]}

    done = site.run("provision.yml", "--skip-tags", "verify", "-e", json.dumps(choice))

    asked = set(site.asked("node01"))
    for name in ("package_sources", "planned_packages"):
        assert {line for line in asked if line.startswith(name)} == {f"{name}={PROXY}"}, done.stdout
    # The comparison asks for headers; the look at programs on the GPUs fetches nothing.
    assert {f"plan_state={PROXY}", "plan_state=-", "gpu_facts=-"} <= asked
    assert (tmp_path / "drained").read_text().startswith("drain node01 none\n")
    assert "T0K3N" not in done.stdout + done.stderr
