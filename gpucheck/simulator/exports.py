"""The functions that libnvidia-ml exports, by driver branch: what a client of the simulated library finds."""

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parent / "nvml" / "exports.txt"
OWN = "gpucheck_simulator_profile"  # the one symbol that the real library has not


class Export(NamedTuple):
    """One row of nvml/exports.txt, which says what the words mean. branch: the first driver branch that has it."""

    name: str
    branch: int
    how: str


@cache
def all_exports() -> tuple[Export, ...]:
    """Every function of every branch."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple(Export(name, int(branch), how) for name, branch, how in rows)


def exports(version: str) -> tuple[Export, ...]:
    """Those of a driver version; of one that is no number (a build of one's own), all."""
    branch = re.match(r"\d+", version)
    return tuple(one for one in all_exports() if branch is None or one.branch <= int(branch.group()))


def version_script(chosen: tuple[Export, ...]) -> str:
    """For the linker: what of the compiled functions is exported. A function that is not, a client does not find."""
    names = "".join(f"{one.name};\n" for one in chosen)
    return f"{{ global:\n{OWN};\n{names}local: *; }};\n"


def unsimulated_rows(chosen: tuple[Export, ...]) -> str:
    """unsimulated.inc, for unsimulated.c: a row for each function that no C file defines."""
    rows = (f"{one.how.upper().replace('-', '_')}({one.name})\n" for one in chosen if one.how != "answers")
    return "".join(rows)


def check_call(call: str) -> None:
    """Raise ValueError, with the nearest name, unless NVML has such a function; its _v2 or _v3 may be left out."""
    names = {one.name for one in all_exports()}
    bases = {re.sub(r"_v\d$", "", name) for name in names}
    if call in names | bases:
        return
    near = get_close_matches(call, sorted(names | bases), n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"call={call}: NVML has no such function.{guess}")
