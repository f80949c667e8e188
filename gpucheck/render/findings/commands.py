"""Advice as text and commands: which parts of a fix can be pasted into a shell.

A program's name alone does not make a command: "where gpucheck runs" is a sentence. Each program has a grammar: what
its first argument can be, which options take a plain word as value, and whether plain words can follow at all.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# The commands of gpucheck, and those below them; tests compare this with the command line itself.
GPUCHECK: dict[str, tuple[str, ...]] = {
    "bandwidth": (),
    "bundle": ("files", "make", "order", "verify"),
    "collectives": (),
    "compute": (),
    "diagnose": (),
    "explain": (),
    "fleet": ("report",),
    "image": ("build", "context", "list", "versions"),
    "lab": ("down", "real-packages", "status", "up"),
    "profiles": (),
    "record": (),
    "schema": (),
    "simulate": (),
    "smoke": (),
    "stack": ("check", "check-repositories", "diff", "lock", "plan", "resolve", "rules"),
    "topo": (),
    "verify": (),
}
OPTION, PATH, SHELL = r"-\S+", r"[\"']?[/~.$*]\S*", r"[|>]|\d?>\S*|&&"
UNIT_VERBS = "cat|daemon-reload|disable|enable|is-active|mask|reset-failed|restart|show|start|status|stop|unmask"
WORD = r"[\w.@:+-]+"


class Program(NamedTuple):
    """A program's arguments. first: the first one. plain: the plain words that can follow it.

    valued: short options whose value can be a plain word. alone: whether the name by itself is a command.
    """

    first: str
    plain: str = r"(?!)"
    valued: str = r"(?!)"
    alone: bool = False


PROGRAMS = {
    "gpucheck": Program(f"{'|'.join(GPUCHECK)}|{OPTION}", valued="-[aefo]"),
    "nvidia-smi": Program(
        f"{OPTION}|topo|nvlink|c2c|mig|conf-compute|vgpu|{SHELL}", r"[anprw]{1,2}", "-[di]", alone=True
    ),
    "nvidia-ctk": Program(f"{OPTION}|cdi|config|info|runtime|system", "configure|generate|list|create-device-nodes"),
    "nvidia-modprobe": Program(OPTION),
    "dmesg": Program(f"{OPTION}|{SHELL}"),
    "journalctl": Program(OPTION, valued="-[ou]"),
    "systemctl": Program(f"{OPTION}|{UNIT_VERBS}", WORD),
    "lspci": Program(f"{OPTION}|{SHELL}"),
    "setpci": Program(OPTION),
    "cat": Program(PATH),
    "ls": Program(f"{OPTION}|{PATH}"),
    "df": Program(f"{OPTION}|{PATH}"),
    "cpupower": Program(r"(?:frequency|idle)-(?:set|info)", valued="-g"),
    "modprobe": Program(r"-\S+|nvidia[\w-]*|nouveau|gdrdrv|mlx5\w*|ib_\w+|vfio[\w-]*", r"nvidia[\w-]*|nouveau"),
    "apt-mark": Program("hold|unhold|showhold|manual|auto", WORD),
    "numactl": Program(OPTION),
    "unset": Program(r"[A-Z][A-Z0-9_]*"),
    "dkms": Program("add|autoinstall|build|install|remove|status|uninstall", valued="-[mv]"),
    "mokutil": Program(OPTION),
    "free -h": Program(r"(?!)", alone=True),
    "pip install": Program(rf"{OPTION}|'[^']*'|{WORD}", WORD, valued="-[cr]"),
    "python -c": Program(r"['\"].*"),
    "python -m": Program(r"[\w.]+", WORD),
    "make provision": Program(r"[A-Z_]+=\S*", alone=True),
    "make verify": Program(r"[A-Z_]+=\S*", alone=True),
}
NAMES = "|".join(sorted(PROGRAMS, key=len, reverse=True)).replace("python -", "python3? -")
COMMAND = re.compile(rf"(?<![\w./'-])(?:sudo )?(?:{NAMES})(?=[ ;,.]|$)")
ARGUMENT = re.compile(r" +('[^']*'|\"[^\"]*\"|[^\s;,()]+(?:,[^\s;,()]+)*)")
PLAIN = re.compile(r"[A-Za-z]*[a-z][A-Za-z]*(?:['-][A-Za-z]+)*")
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
    for found in COMMAND.finditer(advice):
        if found.start() < done:
            continue
        name = found[0].removeprefix("sudo ").replace("python3", "python")
        end = _end(advice, found.end(), name)
        if end == found.end() and not PROGRAMS[name].alone:
            continue
        if found.start() > done:
            yield Part(advice[done : found.start()], is_command=False)
        yield Part(advice[found.start() : end], is_command=True)
        done = end
    if done < len(advice):
        yield Part(advice[done:], is_command=False)


def _end(advice: str, start: int, name: str) -> int:
    """Where the arguments end."""
    program, end = PROGRAMS[name], start
    before: list[str] = []
    while argument := ARGUMENT.match(advice, end):
        word = argument[1].rstrip(".:") if not argument[1].endswith("...") else argument[1]
        if word in PROSE or not _is_argument(program, name, word, before):
            break
        end = argument.end() - (len(argument[1]) - len(word))
        if word != argument[1]:
            break
        before.append(word)
    return end


def _is_argument(program: Program, name: str, word: str, before: list[str]) -> bool:
    """Whether the word is an argument after those before it."""
    if not before:
        return re.fullmatch(program.first, word) is not None
    if not PLAIN.fullmatch(word) or any(re.fullmatch(SHELL, one) for one in before):
        return True
    last = before[-1]
    if last.startswith("--"):
        return "=" not in last
    if re.fullmatch(program.valued, last):
        return True
    if name == "gpucheck":
        below = GPUCHECK.get(last, ()) if len(before) == 1 else ()
        return word in below or before == ["explain"]
    return re.fullmatch(program.plain, word) is not None
