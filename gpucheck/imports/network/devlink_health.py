"""devlink health show: what the driver of a card detected itself, by reporter."""

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

NAME = "devlink-health"
DEVICE = regex(r"^\s{0,12}((?:pci|auxiliary)/[\w.:-]{4,60}(?:/\d{1,8})?):\s*$")
REPORTER = regex(r"^\s{1,16}reporter (\w{1,40})\s*$")
STATE = regex(r"^\s{1,20}state (healthy|error) error (\d{1,12}) recover (\d{1,12})\b")
INSIDE = regex(r"^\s{1,20}(?:reporter \w|state (?:healthy|error) error \d|last_dump_date|grace_period|auto_)")


def parse(lines: list[str]) -> Part:
    """A reporter in state error is a fault now; a count of one that is healthy has no date. Raises ImportProblem."""
    device = reporter = ""
    messages, count = [], 0
    for number, line in enumerate(lines, start=1):
        if match := DEVICE.match(line):
            device = match[1]
        elif match := REPORTER.match(line):
            reporter = match[1]
        elif match := STATE.match(line):
            count += 1
            text = f"{device} reporter {reporter}: {line.strip()}"[:200]
            if match[1] == "error" or int(match[2]):
                key = f"{NAME}.{'error' if match[1] == 'error' else 'recovered'}"
                messages.append(Message(key=key, text=text, line=number))
    if not count:
        raise absent("devlink health", "no line has the state of a reporter", "Give: devlink health show")
    return Part(messages=tuple(messages), looked_at=(f"devlink health: {counted(count, 'reporter')}",))


KIND = Kind(
    name=NAME,
    title="the output of devlink health",
    parse=parse,
    hints=("reporter ",),
    blocks=lambda lines: spans(lines, DEVICE, INSIDE),
)
