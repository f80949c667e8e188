"""Inputs made against what readers do: depth, references, repetition, names. They are run as they are, not mutated."""

import json
import re
from collections.abc import Callable
from functools import cache

import msgspec

from gpucheck.model import Verdict
from tests.fuzz import hostile
from tests.fuzz.seeds import documents, own
from tests.fuzz.seeds import pastes as pasted

YEARS = ("2025", "2026")
NAMES = (
    *("good1", "node3\nnode-evil", "node5,localhost", "x --rdzv-backend=evil", "all:!good1", "../../../evil", "."),
    *("..", "./good1", "/elsewhere", "a\0b", "a/b", "n" * 5000, "n" * 200, hostile.TAG, f"x\n{hostile.FORGED}"),
    *("\x1b[2J", "="),
)


@cache
def yaml() -> tuple[bytes, ...]:
    """Depth in block and flow style, references to references, a value inside itself, ten thousand keys."""
    rows = [f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(10))}}}" for n in range(1, 10)]
    return (
        b"- " * 30_000,
        b"? " * 30_000,
        "".join(f"{' ' * n}a:\n" for n in range(400)).encode(),
        b"[" * 30_000,
        b"{a: " * 5_000,
        "\n".join(["a0: &a0 {k: 1}", *rows, f"gpus: *a{len(rows)}"]).encode(),
        b"x: &a\n  b: *a\n",
        b"gpus: &a [*a]\n",
        "".join(f"key{n}: {n}\n" for n in range(10_000)).encode(),
        b"a: " + b"9" * 100_000,
        b"a: '" + b"x" * 100_000 + b"'",
        b"&a" * 10_000,
        b"!" * 50_000,
    )


def observations() -> tuple[bytes, ...]:
    """Numbers near zero, and the largest matrices."""
    tiny = documents.observations()[0].replace(b"1", b"1e-320", 3)
    matrix = [["X" if i == j else "SYS" for j in range(64)] for i in range(64)]
    rates = [[None if i == j else 1.0 + i * 0.01 + j for j in range(64)] for i in range(64)]
    large = {"gpus": {"count": 64}, "matrix": matrix, "measured": {"p2p_uni_gb_s": rates, "staged_uni_gb_s": rates}}
    return (*yaml(), tiny, json.dumps(large).encode())


def _ranks(many: Callable[[str], str]) -> str:
    """nccl-tests with other ranks in place of its first."""
    lines = (pasted.DATA / "bandwidth" / "nccl-tests.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if re.match(r"#\s+Rank\s+0 ", line))
    return "".join([*lines[:first], many(re.sub(r"Rank\s+0", "Rank  0", lines[first])), *lines[first + 1 :]])


@cache
def pastes() -> tuple[bytes, ...]:
    """A long line of numbers, hundreds of ranks, as many GPUs as fit, the same header again and again."""
    head = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\n"
    many = "\t".join(f"GPU{n}" for n in range(128))
    rows = "".join(f"GPU{n}\t" + "\t".join("X" if m == n else "SYS" for m in range(128)) + "\n" for n in range(128))
    return tuple(
        text.encode()
        for text in (
            head + "0 " * 30_000 + "a\nGPU1\tPIX\t X \t0-7\n",
            head + "0-" * 30_000,
            head * 2_000,
            _ranks(lambda line: line * 400),
            _ranks(lambda line: "".join(line.replace("Rank  0", f"Rank {n:2}") for n in range(400))),
            f"\t{many}\n{rows}",
            "<system version='1'>" + "<cpu numaid='0'>" * 3_000,
            "<system version='1'><cpu numaid='0'>" + "<nic><net/></nic>" * 20_000,
            "<system version='1'><cpu numaid='0'" + " a='b'" * 30_000,
            "\x1b[" * 30_000,
            "[  " * 30_000,
            "NVRM: Xid (PCI:0000:3b:00): 79, " * 3_000,
            "#012" * 20_000,
            " " * 190_000,
            "D\\D " + "0 " * 40_000,
        )
    )


@cache
def reports() -> tuple[bytes, ...]:
    """One that contradicts itself, numbers under our own names, names that are more than a name."""
    from tests.fleet.reports import STARTED, bad, report

    own_names = {"last_run_timestamp": {"seconds": 5.0}, "status": {"x_gb_s": 1}, "info": {"x_gb_s": 1}}
    made = [report("contra", findings=(bad(),)), report("own-names", measurements=own_names)]
    made += [report(name) for name in NAMES]
    # The same host as a healthy one, older and newer than it.
    made += [
        report("good1", verdict=Verdict.FAIL, findings=(bad(),), started=STARTED.replace("2026", year))
        for year in YEARS
    ]
    return tuple(msgspec.json.encode(one) for one in made)


@cache
def facts() -> tuple[bytes, ...]:
    """Names that are paths."""
    first = json.loads(own.facts()[0])
    return tuple(json.dumps({**first, "host": name}).encode() for name in NAMES)


def keys() -> tuple[bytes, ...]:
    """Armor that begins again and again, and two keys in one file."""
    armored, other = documents.keys()[:2]
    return (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" * 4_000,
        armored + other,
        documents.keys()[2] + documents.keys()[3],
    )
