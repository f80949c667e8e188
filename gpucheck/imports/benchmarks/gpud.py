"""States of gpud's components, as its API and ``gpud`` print them: JSON, one object a component."""

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import ImportProblem, json_object, objects, regex, rows_of, string_of
from gpucheck.model.facts import Facts
from gpucheck.model.host.readings import KernelLine, KernelLog
from gpucheck.model.paste import Message, Part

TOOL = "gpud"
GPU = "accelerator-nvidia"
XID = regex(r"XID (\d{1,4})\b.{0,200}? detected on (?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})")
BAD = ("Unhealthy", "Degraded")


def parse(lines: list[str]) -> Part:
    root = json_object(lines, TOOL)
    component, states = string_of(root.get("component")), rows_of(root.get("states"))
    if not component or not states:
        raise ImportProblem(f"{TOOL}: no states in it", why="no component", do="Give /v1/states")
    xids: list[KernelLine] = []
    messages: list[Message] = []
    for state in states:
        reason = " ".join(string_of(state.get("reason")).split())[:500]
        if not component.startswith(GPU) or state.get("health") not in BAD:
            continue
        if xid := XID.search(reason):
            xids.append(KernelLine(text=f"NVRM: Xid (PCI:{xid[2]}): {xid[1]}, {reason}"))
        else:
            messages.append(Message(key="gpud.not-healthy", text=f"{component}: {reason}", line=1))
    facts = Facts(kernel_log=KernelLog(lines=tuple(xids), source="gpud")) if xids else Facts()
    return Part(facts=facts, messages=tuple(messages), looked_at=(f"{component} of gpud",))


KIND = Kind(TOOL, "states of gpud", parse, hints=('"states"',), blocks=lambda lines: objects(lines, '"states"'))
