"""Mutations of bytes and lines, for every format."""

from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz import hostile

MOST_BYTES = 200_000
Mutator = Callable[[bytes, Random, Sequence[bytes]], bytes]
TOKENS = tuple(token.encode("utf-8", "surrogatepass") for token in hostile.EVERYWHERE)


def mutated(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    """One to six mutations, one after the other."""
    for _ in range(min(1 + int(random.expovariate(0.8)), 6)):
        data = random.choice(MUTATORS)(data, random, corpus)[:MOST_BYTES]
    return data


def _span(data: bytes, random: Random, most: int = 64) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(start + random.randint(0, most), len(data))


def _flip(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8)) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _splice(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _insert(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(TOKENS) + data[at:]


def _replace_word(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    """A word, a number or a cell becomes a hostile one."""
    start = random.randrange(len(data) + 1)
    end = start
    while start > 0 and data[start - 1] not in b" \t\n,:;\"'<>|=[]{}":
        start -= 1
    while end < len(data) and data[end] not in b" \t\n,:;\"'<>|=[]{}":
        end += 1
    return data[:start] + random.choice(TOKENS) + data[end:]


def _repeat(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    start, end = _span(data, random, 48)
    return data[:start] + _many(data[start:end], random) + data[end:]


def _repeat_long(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + _many(random.choice(hostile.LONG).encode(), random) + data[at:]


def _many(piece: bytes, random: Random) -> bytes:
    """Twice at least; thousands of times seldom, for a long input takes the time of a hundred short ones."""
    times = (
        random.choice((1000, 5000)) if random.random() < 0.03 else random.choice((2, 2, 2, 3, 4, 7, 16, 40, 100, 300))
    )
    return piece * min(times, MOST_BYTES // max(1, len(piece)))


def _lines(change: Callable[[list[bytes], int, Random], None]) -> Mutator:
    def apply(data: bytes, random: Random, corpus: Sequence[bytes]) -> bytes:
        lines = data.split(b"\n")
        change(lines, random.randrange(len(lines)), random)
        return b"\n".join(lines)

    return apply


def _repeat_line(lines: list[bytes], at: int, random: Random) -> None:
    lines[at] = _many(lines[at] + b"\n", random)[:-1]


def _delete_lines(lines: list[bytes], at: int, random: Random) -> None:
    del lines[at : at + random.choice((1, 1, 1, 2, 5, 20))]


def _swap_lines(lines: list[bytes], at: int, random: Random) -> None:
    other = random.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _indent_line(lines: list[bytes], at: int, random: Random) -> None:
    if random.random() < 0.4:
        lines[at] = lines[at].lstrip()
    else:
        lines[at] = random.choice((b" ", b"  ", b"    ", b"\t", b"- ")) + lines[at]


def _new_value(lines: list[bytes], at: int, random: Random) -> None:
    """``key: value`` gets another value, or another key."""
    key, colon, value = lines[at].partition(b":")
    if random.random() < 0.75:
        lines[at] = key + (colon or b":") + b" " + random.choice(TOKENS)
    else:
        indent = key[: len(key) - len(key.lstrip())]
        lines[at] = indent + random.choice(TOKENS) + colon + value


MUTATORS: tuple[Mutator, ...] = (
    _flip, _cut, _remove, _splice, _splice, _insert, _insert, _replace_word, _replace_word, _replace_word, _repeat,
    _repeat_long, _lines(_repeat_line), _lines(_delete_lines), _lines(_swap_lines), _lines(_indent_line),
    _lines(_new_value), _lines(_new_value),
)  # fmt: skip
