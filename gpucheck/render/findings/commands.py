"""Advice as text and commands: which parts of a remedy can be pasted into a shell."""

import re
from collections.abc import Iterator
from typing import NamedTuple

PROGRAM = re.compile(
    r"(?<![\w./'-])(?:sudo )?(?:gpucheck|nvidia-smi|nvidia-ctk|nvidia-modprobe|dmesg|journalctl|systemctl|"
    r"lspci|setpci|cat|ls|cpupower|modprobe|apt-mark|numactl|unset|dkms|mokutil|df|free -h|pip install|python3? -[cm]|"
    r"make (?:provision|verify))(?=[ ;,]|$)"
)
ALONE = frozenset({"nvidia-smi", "make provision", "make verify", "free -h"})
ARGUMENT = re.compile(r" +('[^']*'|\"[^\"]*\"|[^\s;,()]+(?:,[^\s;,()]+)*)")
# The words after a command in our own remedies: an argument is never one of them.
PROSE = frozenset(
    {"/", "again", "and", "as", "asks", "before", "beside", "cannot", "checks", "chooses", "compares", "could"}
    | {"counts", "does", "finds", "first", "for", "from", "has", "if", "in", "installs", "instead", "is", "it"}
    | {"its", "lists", "looks", "names", "of", "on", "or", "prints", "puts", "rebuilds", "records", "says"}
    | {"several", "show", "shows", "so", "starts", "takes", "tells", "than", "that", "the", "them", "then"}
    | {"to", "until", "verifies", "what", "when", "where", "which", "while", "with", "without", "writes"}
)


class Part(NamedTuple):
    """A piece of advice as written in the sentence."""

    text: str
    is_command: bool


def parts(advice: str) -> Iterator[Part]:
    """The advice in order; joined they are the advice again."""
    done = 0
    for found in PROGRAM.finditer(advice):
        if found.start() < done:
            continue
        end = _end(advice, found.end())
        if end == found.end() and found[0] not in ALONE:
            continue
        if found.start() > done:
            yield Part(advice[done : found.start()], is_command=False)
        yield Part(advice[found.start() : end], is_command=True)
        done = end
    if done < len(advice):
        yield Part(advice[done:], is_command=False)


def _end(advice: str, start: int) -> int:
    """Where the arguments end."""
    end = start
    while (argument := ARGUMENT.match(advice, end)) and argument[1].rstrip(".:") not in PROSE:
        end = argument.end()
        if argument[1][-1] in ".:" and not argument[1].endswith("..."):
            return end - 1
    return end
