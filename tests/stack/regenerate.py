"""Write the golden plans anew: python -m tests.stack.regenerate. Then read the diff: every line of it is a decision."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpucheck.cli.stack.common import expanded
from gpucheck.stack import HostFacts, Refusal, StackSpec, resolve, wants
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.resolve import counted
from gpucheck.stack.spec import parse_spec
from gpucheck.stack.text import plan_text, rules_page
from gpucheck.stack.text import rows as stack_rows
from tests.stack.hosts import GPU_SETS, SYSTEMS, host

FOLDER = Path(__file__).parent / "golden"
PAGE = Path(__file__).parent.parent.parent / "docs" / "stack-rules.md"
# Ubuntu 20.04 is planned only for a site that states driver and CUDA itself.
SPECS = {"ubuntu-20.04": StackSpec(driver="580", cuda="12.9")}
# A release with the revision of Ubuntu's own archive, which no table names.
UBUNTUS = "580.95.05-0ubuntu0.24.04.1"
# A distribution's own archive: the same hosts under another name, with the specification for it.
ARCHIVES = {
    "debian-12-archive": ("debian-12", StackSpec(source="debian")),
    "ubuntu-24.04-archive": ("ubuntu-24.04", StackSpec(source="ubuntu", driver=UBUNTUS)),
}
LAB = {"lab-apt": ("ubuntu-22.04", "p100-pcie-x2"), "lab-dnf": ("rocky-9", "h100-sxm5-x8")}


# Every GPU set on one system of each package manager; everywhere else one set. The rest: test_every_plan.py.
DEPTH = ("ubuntu-22.04", "rocky-9")
BREADTH = "h100-pcie-x2"
PLANS = [(system, gpus) for system in DEPTH for gpus in GPU_SETS]
PLANS += [(system, BREADTH) for system in (*SYSTEMS, *ARCHIVES) if system not in DEPTH]


# The similar plan that a plan is kept as a difference to: by GPU set on one system, then by system with one GPU set.
GPU_BASE = {
    **dict.fromkeys(GPU_SETS, BREADTH),
    **dict.fromkeys(("a100-sxm4-x8", "b200-x8"), "h100-sxm5-x8"),
    **dict.fromkeys(("p100-sxm2-x4", "v100-sxm2-x8"), "p100-pcie-x2"),
    "mixed-v100-a100": "v100-sxm2-x8",
    **dict.fromkeys(("gb200-x4", "gh200-x1"), "h100-pcie-x2-arm64"),
}
SYSTEM_BASE = {
    **{name: "ubuntu-22.04" for name in SYSTEMS if name.startswith(("ubuntu", "debian"))},
    **{name: f"rocky-{name.rpartition('-')[2]}" for name in SYSTEMS if name.endswith(("-8", "-9", "-10"))},
    **dict.fromkeys(("rocky-8", "rocky-10"), "rocky-9"),
    **{name: system for name, (system, _) in ARCHIVES.items()},
}


def base(system: str, gpus: str) -> tuple[str, str] | None:
    """The plan that this one is kept as a difference to; None where the whole plan is kept."""
    found = (system, GPU_BASE[gpus]) if gpus != BREADTH else (SYSTEM_BASE.get(system, system), gpus)
    return None if found == (system, gpus) else found


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Keys of after that are not the same before; mappings by key, lists whole. Keys that are gone stand in "gone"."""
    found = {}
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        inner = isinstance(value, dict) and isinstance(before.get(key), dict)
        found[key] = difference(before[key], value) if inner else value
    gone = [key for key in before if key not in after]
    return {**found, **({"gone": gone} if gone else {})}


def kept(value: dict[str, Any], against: tuple[str, str] | None) -> str:
    """A golden value as the text that is kept: its difference to a base, or all of it where there is none."""
    if against and "refused" not in value:
        value = {"base": "/".join(against), **difference(golden(*against), value)}
    return text(value)


@cache
def golden(system: str, gpus: str) -> dict[str, Any]:
    """What a review of one plan needs to see, without the reasons that repeat in every plan."""
    system, spec = ARCHIVES.get(system, (system, SPECS.get(system, StackSpec())))
    made = lock(spec, [host(system, gpus)])
    found = plan(made, host="node01")
    if isinstance(found, Refusal):
        return {"refused": [{"because": c.because, "try": c.try_} for c in found.conflicts]}
    torch, tensorflow = found.stack.torch, found.stack.tensorflow
    archive = {"archive": found.archive} if found.archive else {}
    return {
        "group": found.group,
        "kernel_module": found.expected["kernel_module"],
        "repositories": [repository["url"] for repository in found.repositories],
        **archive,
        "module_stream": found.module_stream,
        "packages": {name: [p["spec"] for p in part["packages"]] for name, part in found.components.items()},
        "headers": list(found.headers),
        **({"kernel_modules": found.kernel_modules} if found.kernel_modules else {}),
        "compilers": list(found.compilers),
        "prerequisites": list(found.prerequisites),
        **({"dkms_source": found.dkms_source} if found.dkms_source else {}),
        "python": found.python["interpreter"],
        "files": [file["path"] for file in found.files],
        "services": [row["name"] if row["enabled"] else f"{row['name']} (not enabled)" for row in found.services],
        "torch": f"{torch.version}+{torch.build} on Python {torch.python}" if torch else None,
        "tensorflow": msgspec.to_builtins(tensorflow),
        "not_confirmed": [r.because for r in (*found.stack.reasons, *found.reasons) if not r.confirmed],
    }


# Inputs of a row of specs.yml that its base may state otherwise.
INPUTS: dict[str, Any] = {"system": "", "gpus": "", "spec": "", "facts": {}}


def specs() -> list[dict[str, Any]]:
    """The rows of specs.yml: a host (facts: other than those of a bare one), a specification, and what these change.

    base: what the plan that they are compared with has in place of these inputs; a plan without the specification where
    it is not stated. plan: the difference, or the refusal. text: lines of the plan's text that the base has not.
    """
    rows: list[dict[str, Any]] = yaml.safe_load((FOLDER / "specs.yml").read_text(encoding="utf-8"))
    return rows


def changed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of specs.yml with its plan and its text made anew."""
    inputs = {key: row.get(key, default) for key, default in INPUTS.items()}
    made = _made(**inputs)
    if isinstance(made, Refusal):
        return {**row, "plan": {"refused": [{"because": c.because, "try": c.try_} for c in made.conflicts]}}
    before = _made(**{**inputs, **row.get("base", {"spec": ""})})
    known = {} if isinstance(before, Refusal) else document(before)
    found = {**row, "plan": difference(known, document(made))}
    for key in ("unconfirmed", "reasons"):
        found["plan"].get(key, {}).pop("gone", None)
    if "text" in row:
        # The reasons that follow are those of the plan.
        lines = [] if isinstance(before, Refusal) else plan_text(before).splitlines()
        whole = plan_text(made).partition("\nwhy\n")[0]
        found["text"] = [line for line in whole.splitlines() if line not in lines]
    return found


@cache
def _bare(system: str, gpus: str) -> HostFacts:
    if gpus not in GPU_SETS:
        device, count = gpus.split("x")
        GPU_SETS[gpus] = ((device,) * int(count), 0, "x86_64")
    return host(system, gpus)


def _made(system: str, gpus: str, spec: str, facts: dict[str, Any]) -> Plan | Refusal:
    bare = msgspec.to_builtins(_bare(system, gpus))
    one = msgspec.convert({**bare, **facts}, HostFacts)
    return plan(lock(parse_spec(spec, "stack.yml"), [one]), host="node01")


def document(found: Plan) -> dict[str, Any]:
    """The whole plan, its lists by name or path, so that a difference shows single rows."""
    raw = msgspec.json.decode(msgspec.json.encode(found))
    stack = raw.pop("stack")
    reasons = (*stack.pop("reasons"), *raw.pop("reasons"))
    for name, part in raw["components"].items():
        specs, names = ([row[key] for row in part["packages"]] for key in ("spec", "name"))
        raw["components"][name] = {
            **part,
            "packages": specs,
            "holds": "all" if part["holds"] == names else part["holds"],
        }
    return {
        **raw,
        "stack": stack,
        "repositories": {row["name"]: row for row in raw["repositories"]},
        "files": {row.pop("path"): row for row in raw["files"]},
        "services": {row.pop("name"): row for row in raw["services"]},
        "unconfirmed": {row["spec"]: row["because"] for row in raw.pop("unconfirmed")},
        "reasons": {
            f"{row['component']}: {row['because']}": row["confirmed"]
            for row in reasons
            if not row["because"].startswith("unconfirmed, no record")
        },
    }


def questions() -> list[dict[str, Any]]:
    """The rows of resolve.yml: GPUs as of --gpu, a system, what is wanted as of --want, and the answer or refusal."""
    rows: list[dict[str, Any]] = yaml.safe_load((FOLDER / "resolve.yml").read_text(encoding="utf-8"))
    return rows


def answered(row: dict[str, Any]) -> dict[str, Any]:
    """A row of resolve.yml with its answer made anew."""
    spec = wants(tuple(row.get("want", ())))
    if row.get("allow_end_of_life"):
        spec = msgspec.structs.replace(spec, end_of_life_os="allow")
    gpus = expanded(tuple(row["gpus"].split(" + ")))
    found = resolve(gpus, row["os"], row.get("arch"), spec, nvswitches=row.get("nvswitches"))
    if isinstance(found, Refusal):
        (first, *_) = found.conflicts
        facts = [fact.fact for fact in first.between]
        refused = {"rule": first.rule, "because": first.because, "facts": facts, "try": first.try_}
        return {**row, "answer": {"refused": {**refused, "change": dict(first.change)}}}
    reasons = [f"{one.component}: {one.because}{'' if one.confirmed else ' (not confirmed)'}" for one in found.reasons]
    chosen = {title: label for title, label in stack_rows(found) if label != "none"}
    return {**row, "answer": {"gpus": counted(found.gpus), "os": f"{found.os} {found.arch}", **chosen, "why": reasons}}


def lab_plan(name: str) -> str:
    """The whole plan of a lab host, as the roles read it."""
    system, gpus = LAB[name]
    made = lock(StackSpec(driver="580"), [host(system, gpus, name)])
    return msgspec.json.format(msgspec.json.encode(plan(made, host=name)), indent=2).decode() + "\n"


def text(value: dict[str, Any]) -> str:
    """A golden value as the text that is kept."""
    return yaml.safe_dump(value, sort_keys=False, width=120, allow_unicode=True)


class SpecsDumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


SpecsDumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if value.endswith("\n") else None
    ),
)


def _dumped(rows: list[dict[str, Any]]) -> str:
    return yaml.dump(rows, Dumper=SpecsDumper, sort_keys=False, width=120, allow_unicode=True)


def main() -> None:
    """Write every golden file, and the page of the rules."""
    for system, gpus in PLANS:
        path = FOLDER / system / f"{gpus}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kept(golden(system, gpus), base(system, gpus)), encoding="utf-8")
    (FOLDER / "specs.yml").write_text(_dumped([changed(row) for row in specs()]), encoding="utf-8")
    (FOLDER / "resolve.yml").write_text(_dumped([answered(row) for row in questions()]), encoding="utf-8")
    for name in LAB:
        (FOLDER / f"{name}.json").write_text(lab_plan(name), encoding="utf-8")
    PAGE.write_text(rules_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
