"""One input through one target: nothing, or what failed and where."""

import gc
from collections.abc import Collection
from typing import NamedTuple

from tests.fuzz.limits import TooSlow, bounded, most_bytes, peak_bytes, seconds, slowness
from tests.fuzz.oracles import Wrong, product_function, product_line
from tests.fuzz.target import Target

QUOTE = 300
PATIENCE = 6
SLOW, LARGE = "slow", "large"


class Failure(NamedTuple):
    """kind: exception or broken rule. where: the product's line. detail: one line. Equal kind and place: one."""

    target: str
    kind: str
    where: str
    detail: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two failures the same."""
        return self.target, self.kind, self.where


def outcome(target: Target, data: bytes, known: Collection[tuple[str, str, str]] = ()) -> Failure | None:
    """None where all is well. What is slow is run again, and fails only if it is slow again, or known to be.

    In between it may take its time: what was interrupted may have been the import of a module.
    """
    failure = _once(target, data)
    if failure is None or failure.kind != SLOW or failure.key in known:
        return failure
    gc.collect()
    patient = _once(target, data, PATIENCE)
    return _once(target, data, slowness()) if patient is None else patient


def _once(target: Target, data: bytes, times: float = 1) -> Failure | None:
    before = BASELINE.used()
    try:
        with bounded(len(data), times):
            target.run(data)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except TooSlow as error:
        detail = f"{len(data)} bytes take more than {seconds(len(data)):.2f} s of processor time"
        return Failure(target.name, SLOW, product_function(error), detail)
    except Wrong as error:
        return Failure(target.name, error.rule, error.where, _line(error.detail))
    except BaseException as error:
        return Failure(target.name, type(error).__name__, product_line(error), _line(ascii(str(error))))
    after = BASELINE.used()
    if after > before and after > most_bytes(len(data)):
        return Failure(target.name, LARGE, "", f"{len(data)} bytes take {after >> 20} MiB")
    return None


class _Baseline:
    """Memory that this process had before its first input, its seeds and all modules included."""

    def __init__(self) -> None:
        self.bytes = 0

    def used(self) -> int:
        """The peak since then."""
        return peak_bytes() - self.bytes if self.bytes else 0


BASELINE = _Baseline()


def start_counting_memory() -> None:
    """From here on memory is what inputs took."""
    BASELINE.bytes = peak_bytes()


def _line(text: str) -> str:
    return " ".join(text.split())[:QUOTE]
