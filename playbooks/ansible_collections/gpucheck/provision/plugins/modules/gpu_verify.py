#!/usr/bin/python
"""Verify a host and bring its report back, in one round trip."""

DOCUMENTATION = r"""
module: gpu_verify
short_description: Run gpucheck verify on a host and bring its report to the controller
description:
  - Removes the report of an earlier run, runs C(gpucheck verify), and returns the new report, in one round trip. The
    action plugin of the same name writes it on the controller.
  - Any verdict is a success of this module. It fails where there is no verdict, or with C(only) where a step fails.
  - If a device cgroup hides GPUs from the login session, as pam_slurm_adopt does, gpucheck runs again in a transient
    unit of systemd, and that report counts.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, for messages."}
  dest: {type: path, required: true, description: The file on the controller that gets the report.}
  only: {type: list, elements: str, default: [], description: "Run these steps alone, as a quick verification. FAIL of
    any of them, UNKNOWN of driver, inventory or fabric, or fewer GPUs than C(gpus) fail the task with the findings."}
  gpus: {type: int, default: 0, description: GPUs that the host had before.}
  timeout_s: {type: int, default: 1200, description: Time limit on the host in seconds. A program that exceeds it is
    terminated.}
  arguments: {type: list, elements: str, default: [], description: "Further options of C(gpucheck verify), such as
    C(--level) and C(quick)."}
  program: {type: path, default: /opt/gpucheck/bin/gpucheck, description: gpucheck on the host.}
  report: {type: path, default: /var/lib/gpucheck/report.json, description: Where the report stays on the host.}
notes:
  - Why this module exists. M(ansible.builtin.command) and M(ansible.builtin.fetch) take three round trips and cannot
    distinguish a stale report from a new one.
author: gpucheck
"""

RETURN = r"""
status: {returned: success, type: int, description: "gpucheck's exit status, 0 pass, 1 warn, 2 fail, 3 unknown."}
report: {returned: success, type: str, description: "The report's text. The action plugin decodes it, writes it and
  removes it from the result."}
hung: {returned: where that is so, type: bool, description: That nothing was returned in time.}
dest: {returned: by the action plugin, type: str, description: The file on the controller.}
"""

import json
import os
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

VERDICTS = {0: "pass", 1: "warn", 2: "fail", 3: "unknown"}
# What gpucheck gets to end the programs that it has started.
PATIENCE_S = 10
SYSTEMD = "/run/systemd/system"


def verify(program, report, timeout_s, arguments=(), only=()):
    """Return what verified returns, of a unit of systemd if this session may not use all GPUs."""
    end = time.time() + timeout_s
    argv = [program, "verify", *arguments, *(["--only", ",".join(only)] if only else []), "--format", "json", "-o"]
    found = verified(argv, report, timeout_s)
    if not hides_gpus(found[1]) or not os.path.isdir(SYSTEMD):
        return found
    left = max(end - time.time(), 1)
    # A unit outlives systemd-run, so it has a time limit of its own.
    unit = ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", "--property=RuntimeMaxSec={:.0f}".format(left)]
    try:
        outside = verified(unit + argv, report + ".outside", left)
    except subprocess.TimeoutExpired:
        return found
    if not outside[1]:
        return found
    os.rename(report + ".outside", report)
    return outside


def hides_gpus(text):
    partial = json.loads(text).get("partial") if text else None
    return isinstance(partial, dict) and partial.get("by") == "device-cgroup"


def verified(argv, report, timeout_s):
    """(exit status, report, what went wrong): one of the last two is empty. The status is None where nothing ran.

    Raises subprocess.TimeoutExpired without a result in time; the program is terminated then.
    """
    # A report of an earlier run must never be used as the result of this one.
    if os.path.exists(report):
        os.remove(report)
    try:
        running = subprocess.Popen([*argv, report], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        return None, "", str(error)
    stderr = ended(running, timeout_s).decode("utf-8", "replace").strip()
    if running.returncode not in VERDICTS or not os.path.exists(report):
        return running.returncode, "", stderr
    with open(report, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    # A program that breaks down ends with 1 or 2 as well.
    if not has_verdict(text, VERDICTS[running.returncode]):
        return (
            running.returncode,
            "",
            "its report is damaged, or does not match the exit status. {}".format(stderr).strip(),
        )
    return running.returncode, text, ""


def has_verdict(text, verdict):
    try:
        report = json.loads(text)
    except ValueError:
        return False
    return isinstance(report, dict) and report.get("verdict") == verdict


def ended(running, timeout_s):
    """Return what the program wrote to stderr until it exited. Raises TimeoutExpired after terminating it."""
    try:
        return running.communicate(timeout=timeout_s)[1]
    except subprocess.TimeoutExpired:
        running.terminate()
        try:
            running.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            running.kill()
        raise


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "only": {"type": "list", "elements": "str", "default": []},
            "gpus": {"type": "int", "default": 0},
            "timeout_s": {"type": "int", "default": 1200},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "program": {"type": "path", "default": "/opt/gpucheck/bin/gpucheck"},
            "report": {"type": "path", "default": "/var/lib/gpucheck/report.json"},
        }
    )
    host, timeout_s = module.params["host"], module.params["timeout_s"]
    try:
        program, report = module.params["program"], module.params["report"]
        status, report, wrong = verify(program, report, timeout_s, module.params["arguments"], module.params["only"])
    except subprocess.TimeoutExpired:
        module.fail_json(msg="{}: gpucheck verify returned no report within {} s".format(host, timeout_s), hung=True)
    except (OSError, ValueError) as error:
        module.fail_json(msg="{}: its report cannot be stored: {}".format(host, error))
    if not report:
        module.fail_json(
            msg="{}: gpucheck verify returned no report (exit status {}). {} If it is not installed, provision the "
            "host first (make provision).".format(host, "none" if status is None else status, wrong)
        )
    # Not as rc: Ansible takes any that is not 0 for a failure.
    module.exit_json(changed=False, status=status, report=report)


if __name__ == "__main__":
    main()
