"""What the NVML library of each driver branch exports."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpucheck.printable import meant

TABLE = Path(__file__).parent / "exports.txt"
OWN = "gpucheck_simulator_profile"  # the one symbol that the real library has not


class Export(NamedTuple):
    """One row of nvml/exports.txt, which explains the columns. first, last: the driver branches that have it."""

    name: str
    first: int
    last: int
    how: str

    @property
    def of_gpu(self) -> bool:
        about_host = self.how in ("host", "change-host", "object") or self.name.startswith("nvmlDeviceGetCount")
        return self.name.startswith("nvmlDevice") and not about_host


@cache
def all_exports() -> tuple[Export, ...]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple(_export(*row) for row in rows)


def _export(name: str, branches: str, how: str) -> Export:
    first, _, last = branches.partition("-")
    return Export(name, int(first), int(last) if last else sys.maxsize, how)


def exports(version: str) -> tuple[Export, ...]:
    """Those of a driver version; all if it is not a number (a custom build)."""
    number = re.match(r"\d+", version)
    if number is None:
        return all_exports()
    branch = int(number.group())
    return tuple(one for one in all_exports() if one.first <= branch <= one.last)


def version_script(chosen: tuple[Export, ...]) -> str:
    """For the linker: what of the compiled functions is exported. A function that is not, a client does not find."""
    names = "".join(f"{one.name};\n" for one in chosen)
    return f"{{ global:\n{OWN};\n{names}local: *; }};\n"


def unsimulated_rows(chosen: tuple[Export, ...]) -> str:
    """unsimulated.inc, for unsimulated.c: a row for each function that no C file defines."""
    rows = (f"{one.how.upper().replace('-', '_')}({one.name})\n" for one in chosen if one.how != "answers")
    return "".join(rows)


def called(call: str) -> tuple[Export, ...]:
    """The functions that a call means; its _v2 or _v3 may be left out.

    Raises ValueError, with the nearest name, where NVML has none of that name.
    """
    found = tuple(one for one in all_exports() if call in (one.name, base_name(one.name)))
    if found:
        return found
    names = {name for one in all_exports() for name in (one.name, base_name(one.name))}
    raise ValueError(f"call={call}: NVML has no such function.{meant(call, sorted(names))}")


def base_name(name: str) -> str:
    return re.sub(r"_v\d$", "", name)
