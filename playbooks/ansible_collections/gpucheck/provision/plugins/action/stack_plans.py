"""The plan of every host, and what its gpucheck is to be installed from.

All hosts at once, on the controller: a template that reads and digests a plan takes longer than all else about a host
that is as planned, and a task of its own would be a process a host.
"""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

from ansible import __version__ as core
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible.utils.display import Display

from ..plugin_utils import node_result
from ..plugin_utils.files import locked, write

# source: the specification, the set recorded on each host before the present one, or one file for the task's host.
# wheel: path and digests of gpucheck's wheel. bundle_place: where a host keeps a bundle. The rest is for source spec.
ARGUMENTS = {
    "source": {"type": "str", "choices": ["spec", "record", "file"], "required": True},
    "folder": {"type": "path", "required": True},
    "wheel": {"type": "dict", "required": True},
    "bundle_place": {"type": "str", "required": True},
    "torch_index": {"type": "str", "required": True},
    **{name: {"type": "path"} for name in ("gpucheck", "spec", "lock", "bundle", "knowledge", "file")},
}
# 2 and 3: some host is unsupported, which is in the lock with its reason; its plan file states it for that host.
RESOLVED = (0, 2, 3)
BUNDLE = "gpucheck-bundle"
# What a recorded plan that is no plan leads to.
BAD_PLAN = (AttributeError, KeyError, TypeError, ValueError)
# What a site may set for a host, see the options of role gpucheck.
CHOICES = ("gpucheck_python", "gpucheck_image", "gpucheck_pip_args")
WHEELS = "/opt/gpucheck/wheels"
PYTHON = re.compile(r"(\d{1,3})\.(\d{1,3})")


class Unresolved(Exception):
    """There is no lock, so there are no plans."""

    def __init__(self, spec, words):
        super().__init__(f"{spec} could not be resolved into plans, no host was changed. {words}")


def put(path, content):
    if not path.is_file() or path.read_bytes() != content.encode("utf-8"):
        write(path, content)


def take(fresh, paths):
    """Put the new plans in their places. A plan of an earlier run is not taken for one of this."""
    for path in paths:
        if (fresh / path.name).is_file():
            put(path, (fresh / path.name).read_text(encoding="utf-8"))
        else:
            path.unlink(missing_ok=True)
    shutil.rmtree(fresh, ignore_errors=True)


def document(content):
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def digest(plan):
    """As the host computes it from its recorded plan (module_utils/record.py)."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode("utf-8")).hexdigest()


def sources(plan):
    return [repository["name"] for repository in plan.get("repositories") or ()]


def way_back(read):
    """The set that a host returns to, {} where none is recorded.

    The set is restored, the source is kept: an earlier bundle or network may be unavailable.
    """
    back, now = read.get("way_back") or {}, read.get("plan") or {}
    if back:
        # It becomes part of a path on the controller.
        node_result.file_name(back["group"])
    if not back or (BUNDLE in sources(back)) == (BUNDLE in sources(now)):
        return back
    sourced = ("repositories", "dkms_source", "header_metapackage")
    kept = {name: value for name, value in back.items() if name not in sourced}
    return {**kept, **{name: now[name] for name in sourced if name in now}}


def origin(plan, wheel, choices, bundle_place, torch_index):
    """{requirements, torch, pip_args, digest}: what pip is given on the host, and a digest of all that decides it.

    requirements: all with hashes, the lock that lies next to them included. torch: its version alone is pinned.
    """
    torch = (plan.get("stack") or {}).get("torch") or {}
    indexed = torch.get("origin") == "index"
    pip_args = ["--extra-index-url", torch_index + torch["build"]] if indexed else []
    if BUNDLE in sources(plan):
        pip_args = ["--no-index", "--find-links", f"{bundle_place}/wheels"]
    elif choices.get("gpucheck_pip_args") is not None:
        pip_args = list(choices["gpucheck_pip_args"])
    pin = f"torch=={torch['version']}{'+' + torch['build'] if indexed else ''}" if torch else ""
    file = f"file://{WHEELS}/{Path(wheel.get('path', '')).name}"
    own = f"gpucheck-cluster @ {file} --hash=sha256:{wheel.get('sha256', '')}"
    requirements = f"--requirement requirements.lock\n{own}\n"
    planned = (plan.get("python") or {}).get("interpreter") or "python3"
    python, image = choices.get("gpucheck_python") or planned, choices.get("gpucheck_image") or ""
    words = " ".join([wheel.get("digest", ""), requirements, pin, python, image, *pip_args])
    decided = hashlib.sha256(words.encode("utf-8")).hexdigest()
    return {"requirements": requirements, "torch": pin, "pip_args": pip_args, "digest": decided}


def from_internet(plan, choices):
    words = " ".join(str(word) for word in choices.get("gpucheck_pip_args") or ())
    own = any(option in words for option in ("-i ", "--index-url", "--find-links", "-f ", "--no-index"))
    return not (own or choices.get("gpucheck_image") or BUNDLE in sources(plan))


def newest_python():
    """The newest Python of hosts that this ansible-core supports, as (3, 12): the first of its own list."""
    known = constants.config.get_configuration_definitions()["INTERPRETER_PYTHON_FALLBACK"]["default"]
    return max(tuple(map(int, name[len("python") :].split("."))) for name in known if name.startswith("python3."))


def python_warning(reads, newest):
    """Return which hosts have a newer Python than that, or nothing. An older one has failed before."""
    seen = {host: PYTHON.match(read.get("python") or "") for host, read in reads.items()}
    newer = sorted(host for host, found in seen.items() if found and tuple(map(int, found.groups())) > newest)
    if not newer:
        return ""
    more = f" and {len(newer) - 1} more" if newer[1:] else ""
    return (
        f"Python {seen[newer[0]].group()} on {newer[0]}{more} is newer than "
        f"ansible-core {core} of this controller supports ({'.'.join(map(str, newest))}). If a step fails there, use a "
        "controller with Python 3.12 or newer, where make installs a newer ansible-core."
    )


def refusal(host, words):
    """Return the entry of an unsupported host, in place of a plan; the other hosts continue."""
    fact = {"fact": f"what {host} returned", "source": "the host"}
    because = f"the set that is recorded on {host} cannot be used: {node_result.one_line(words, 300)}"
    try_ = "check /etc/gpucheck on the host, or set the versions in stack.yml and run make provision"
    return {"schema": "gpucheck.plan/1", "conflicts": [{"because": because, "between": [fact], "try": try_}]}


def as_planned(read, plan, decided):
    """The host compared itself with its recorded plan when it was read. If that is this plan, it is valid."""
    recorded = read.get("recorded") or ""
    compared = "differences" in (read.get("state") or {})
    return bool(recorded and compared and recorded == digest(plan) and read.get("requirements") == decided)


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        here = task_vars["inventory_hostname"]
        whole = arguments["source"] != "file" and here == "localhost"
        hosts = task_vars["groups"].get("gpu", []) if whole else [here]
        variables = {host: task_vars["hostvars"].raw_get(host) for host in hosts}
        reads = {host: variables[host].get("gpu_facts_read") or {} for host in hosts}
        result["changed"] = False
        try:
            with locked(Path(arguments["folder"])):
                files = getattr(self, arguments["source"])(arguments, reads)
                result["plans"] = {
                    host: self.host_row(host, path, arguments, reads[host], variables[host])
                    for host, path in files.items()
                    if path.is_file()
                }
            if whole:
                result["warnings"] = list(filter(None, [python_warning(reads, newest_python())]))
        except OSError as error:
            result.update(failed=True, msg=f"{error.filename}: {error.strerror}. No host was changed.")
        except (Unresolved, ValueError) as error:
            result.update(failed=True, msg=str(error))
        return result

    def host_row(self, host, path, arguments, read, variables):
        plan = json.loads(path.read_text(encoding="utf-8"))
        templar = Templar(loader=self._loader, variables=variables)
        choices = {name: templar.template(variables[name]) for name in CHOICES if name in variables}
        given = (arguments["wheel"], choices, arguments["bundle_place"], arguments["torch_index"])
        try:
            row = origin(plan, *given)
        except BAD_PLAN as error:
            plan = refusal(host, f"{type(error).__name__} {error}")
            put(path, document(plan))
            row = origin(plan, *given)
        done = as_planned(read, plan, row["digest"]) or read.get("requirements") == row["digest"]
        downloads = bool(row["torch"] and not done and from_internet(plan, choices))
        # As the lookup that reads it: another run with the same folder may write another plan meanwhile.
        sha256 = hashlib.sha256(path.read_bytes().rstrip()).hexdigest()
        row = {"file": str(path), "sha256": sha256, **row}
        return {**row, "as_planned": as_planned(read, plan, row["digest"]), "downloads": downloads}

    # Where plans come from

    def file(self, arguments, reads):
        return dict.fromkeys(reads, Path(arguments["file"]))

    def record(self, arguments, reads):
        """Return the rollback plan of each host; a host without one gets an empty plan."""
        folder = Path(arguments["folder"]) / "way-back"
        files = {host: folder / f"{node_result.file_name(host)}.json" for host in reads}
        for host, path in files.items():
            try:
                back = way_back(reads[host])
            except BAD_PLAN as error:
                back = refusal(host, f"{type(error).__name__} {error}")
            put(path, document(back))
        return files

    def spec(self, arguments, reads):
        """One call of gpucheck for all: hosts of the same system and GPUs form a group and get the same set.

        A host that is down or outside the limit stays in the lock with the facts it gave last.
        """
        facts, plans = Path(arguments["folder"]) / "facts", Path(arguments["folder"]) / "plans"
        files = {host: plans / f"{node_result.file_name(host)}.json" for host in reads}
        for host, read in reads.items():
            if "facts" in read:
                # A host is identified by its inventory name, never by the name it reports.
                put(facts / f"{host}.json", document({**read["facts"], "host": host}))
        own = ["--knowledge-dir", arguments["knowledge"]] if arguments["knowledge"] else []
        words = [arguments["gpucheck"], "stack", *own, "lock", "--spec", arguments["spec"], "-o", arguments["lock"]]
        # Under the lock, so what is there is of a killed run.
        fresh = Path(arguments["folder"]) / ".plans"
        shutil.rmtree(fresh, ignore_errors=True)
        words += ["--all-hosts", str(fresh)] + (["--bundle", arguments["bundle"]] if arguments["bundle"] else [])
        given = [str(facts / f"{host}.json") for host in reads if (facts / f"{host}.json").is_file()]
        for path in given:
            words += ["--facts", path]
        if given:
            done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace", check=False)
        take(fresh, files.values())
        if given and (done.returncode not in RESOLVED or not any(path.is_file() for path in files.values())):
            raise Unresolved(arguments["spec"], (done.stderr + done.stdout).strip())
        if given and done.stdout.strip():
            Display().display(done.stdout.rstrip("\n"))
        return files
