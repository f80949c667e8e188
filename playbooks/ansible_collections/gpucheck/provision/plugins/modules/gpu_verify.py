#!/usr/bin/python
"""Verify a host and bring its report back, in one round trip."""

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
    unit = ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--property=RuntimeMaxSec={left:.0f}"]
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
        damaged = f"its report is damaged, or does not match the exit status. {stderr}"
        return running.returncode, "", damaged.strip()
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
        module.fail_json(msg=f"{host}: gpucheck verify returned no report within {timeout_s} s", hung=True)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{host}: its report cannot be stored: {error}")
    if not report:
        module.fail_json(
            msg="{}: gpucheck verify returned no report (exit status {}). {} If it is not installed, provision the "
            "host first (make provision).".format(host, "none" if status is None else status, wrong)
        )
    # Not as rc: Ansible takes any that is not 0 for a failure.
    module.exit_json(changed=False, status=status, report=report)


if __name__ == "__main__":
    main()
