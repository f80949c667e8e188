"""What a host returns, decoded before anything on the controller reads it; and a host's name as a file name.

A host may be broken or hostile. The fields that a module returns, and their types, are those of its own RETURN
documentation; what does not fit it fails the task. Nothing that Ansible itself acts on gets through: no facts, no
warnings, no claim to be unreachable.
"""

import json
import re
from pathlib import Path

import yaml

MODULES = Path(__file__).resolve().parents[1] / "modules"
TYPES = {"str": str, "list": list, "dict": dict, "int": int, "float": (int, float), "bool": bool, "path": str}
NAMES = {str: "a text", bool: "a truth value", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
# What every module may return: Ansible's own names for how it ended, and what is left of one that broke down.
ALWAYS = {
    **{name: {"type": "bool"} for name in ("changed", "failed", "skipped")},
    **{name: {"type": "str"} for name in ("msg", "module_stdout", "module_stderr")},
    "rc": {"type": "int"},
}
# What a difference is made of, before it is text.
SHOWN = (str, dict, type(None))
# Ansible adds these by itself on the host, or acts on them here.
DROPPED = ("invocation", "warnings", "deprecations", "exception")
# What may hold the contents of files. Everything else is text for display, on one line.
VERBATIM = ("report", "plan", "way_back", "diff", "host")
MOST_BYTES, MOST_REPORT_BYTES = 4 << 20, 32 << 20
MOST_DEPTH, MOST_WORDS, MOST_NAME = 32, 4000, 200
# 64 bits: arithmetic on a larger number, or on one that is none, ends the step that compares all hosts.
MOST_NUMBER = 1 << 63


class Unfit(ValueError):
    """What a host returned is not what its module returns. The message names the field."""


def one_line(words, most=MOST_WORDS):
    """Return a host's text on one line that a terminal only shows: control characters are escaped."""
    text = words if isinstance(words, str) else repr(words)
    text = text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def file_name(name):
    """The name of a host as the name of a file. Raises ValueError for one that would leave its folder."""
    wrong = not isinstance(name, str) or not name.strip(".") or not name.isprintable() or re.search(r"[/\\]", name)
    if wrong or len(name.encode("utf-8", "replace")) > MOST_NAME:
        raise ValueError(
            f"host name {one_line(name, 60)!r} cannot be the name of a file: it takes 1 to {MOST_NAME} bytes of "
            "printable text without / and \\"
        )
    return name


def fields(path):
    """What a host may return from a module, by field: its RETURN documentation without what the controller adds.

    path: of the module; the documentation lies next to it. A field without a type is one that plan_state returns, too.
    """
    documented = yaml.safe_load(path.with_suffix(".yml").read_text(encoding="utf-8"))["RETURN"]
    rows = {name: row for name, row in documented.items() if row.get("returned") != "by the action plugin"}
    known = {} if all("type" in row for row in rows.values()) else fields(MODULES / "plan_state.py")
    return {name: row if "type" in row else known[name] for name, row in rows.items()}


def decoded(result, known):
    """Return the result, its texts on one line each. known: see fields; None takes any field. Raises Unfit."""
    rows = None if known is None else {**ALWAYS, **known}
    bounded(result)
    ended = result.get("failed") is True or result.get("skipped") is True
    if not ended:
        complete(result, known or {})
    found = {}
    for name, value in result.items():
        if rows is not None and name not in rows and name != "diff" and not name.startswith("_ansible_"):
            raise Unfit(f"field {one_line(name, 60)} is not one of its fields")
        if rows is not None and name in rows:
            typed(value, rows[name], name)
        if name == "diff":
            value = shown(value)
        verbatim = name in VERBATIM or (rows is None and name != "msg")
        found[name] = value if verbatim else clean(value)
    for name in ("msg", "module_stdout", "module_stderr"):
        if len(str(found.get(name, ""))) > MOST_WORDS:
            found[name] = one_line(found[name])
    return found


def complete(value, known, field=""):
    """Raise Unfit for a field that is always returned, and is not there.

    Ansible ends the run of all hosts where the condition of a meta task asks for a field that is missing.
    """
    for name, row in known.items():
        if row.get("returned") in ("success", "always") and name not in value:
            raise Unfit(f"field {field}{name} is missing")


def bounded(value, most=MOST_BYTES):
    """Raise Unfit for what is nested too deep, too long, has too many parts, or a number beyond 64 bits."""
    size = count = 0
    rest = [(value, 0, "")]
    while rest:
        part, depth, field = rest.pop()
        count += 1
        if isinstance(part, str):
            # Its parts are counted where it is decoded.
            size += len(part) * MOST_BYTES // MOST_REPORT_BYTES if field == "report" else len(part)
        elif isinstance(part, dict):
            size += sum(len(str(key)) for key in part)
            rest += [(inner, depth + 1, field or one_line(key, 60)) for key, inner in part.items()]
        elif isinstance(part, list):
            rest += [(inner, depth + 1, field) for inner in part]
        elif isinstance(part, (int, float)) and not -MOST_NUMBER <= part < MOST_NUMBER:
            raise Unfit(f"field {field}: a number of more than 64 bits")
        if depth > MOST_DEPTH:
            raise Unfit(f"field {field} is nested deeper than {MOST_DEPTH} levels")
        if size > most or count > most // 16:
            raise Unfit(f"field {field}: more than {most} characters or {most // 16} values")


def typed(value, row, field):
    """Raise Unfit for a value whose type differs from its documentation; ``*`` there is any key."""
    kind = TYPES[row["type"]]
    if value is None and row.get("nullable"):
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        seen = next((words for type_, words in NAMES.items() if isinstance(value, type_)), "nothing")
        raise Unfit(f"field {one_line(field, 120)}: {seen} in place of type {row['type']}")
    if isinstance(value, list) and "elements" in row:
        for number, part in enumerate(value):
            typed(part, {"type": row["elements"], "contains": row.get("contains", {})}, f"{field}[{number}]")
    inner = row.get("contains", {}) if isinstance(value, dict) else {}
    complete(value, inner, f"{field}.")
    for key, part in value.items() if inner else ():
        if not isinstance(key, str):
            raise Unfit(f"field {one_line(field, 120)}: a key that is no text")
        if key in inner or "*" in inner:
            typed(part, inner.get(key) or inner["*"], f"{field}.{key}")


def clean(value):
    if isinstance(value, str):
        return value if value.isprintable() else one_line(value, len(value))
    if isinstance(value, list):
        return [clean(part) for part in value]
    if isinstance(value, dict):
        return {clean(key): part if key in VERBATIM else clean(part) for key, part in value.items()}
    return value


def shown(diff):
    """The texts of a difference as Ansible prints them; their lines stay lines. Raises Unfit.

    Ansible's file module states a difference as mappings: up to 2.16 always, later with --diff.
    """
    rows = diff if isinstance(diff, list) else [diff]
    if not all(isinstance(row, dict) and all(isinstance(part, SHOWN) for part in row.values()) for row in rows):
        raise Unfit("field diff: something else than texts and mappings")
    texts = [{key: part if isinstance(part, str) else json.dumps(part) for key, part in row.items()} for row in rows]
    return [
        {
            key: "\n".join(map(one_line, text.split("\n"))) if key in ("before", "after") else one_line(text)
            for key, text in row.items()
            if key in ("before", "after", "before_header", "after_header", "prepared")
        }
        for row in texts
    ]


def received(action, result, host):
    """Return what an action plugin may pass on of its module's result; a failure with the reason if it is invalid."""
    task = action._task
    place = action._shared_loader_obj.module_loader.find_plugin_with_context(
        task.action, collection_list=task.collections
    ).plugin_resolved_path
    own_module = Path(place or "").resolve().parent == MODULES
    # The only fact that Ansible itself adds, on the controller, so that it does not look for the interpreter again.
    key = action._discovered_interpreter_key
    interpreter = {"ansible_facts": {key: action._discovered_interpreter}} if key else {}
    facts = result.pop("ansible_facts", None) or {}
    try:
        if not isinstance(facts, dict) or set(facts) - {key}:
            raise Unfit("field ansible_facts is not one of its fields")
        if result.pop("unreachable", False):
            raise Unfit("field unreachable is not one of its fields")
        if result.get("skipped") and own_module and not task.check_mode:
            raise Unfit("field skipped is not one of its fields here")
        for name in DROPPED:
            result.pop(name, None)
        return {**decoded(result, fields(Path(place)) if own_module else None), **interpreter}
    except Unfit as wrong:
        module = task.action.rpartition(".")[2]
        words = (
            f"{host}: the result of module {module} was rejected: {wrong}. Inspect the host: its Python interpreter "
            "may be damaged, or the host compromised. If many hosts report this, it is a defect of gpucheck: report it."
        )
        return {"failed": True, "changed": False, "msg": words, **interpreter}
