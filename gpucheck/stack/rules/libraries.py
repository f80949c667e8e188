"""Rules of cuDNN and NCCL: each is built for one CUDA major and needs a toolkit."""

from collections.abc import Iterator
from functools import lru_cache

from gpucheck.stack.types import Clash, Fact, StackSpec
from gpucheck.stack.versions import parse, request


def without_toolkit(key: str, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the two keys and why, if a library is stated and ``cuda`` is ``none``."""
    if request(spec.cuda).none and request(getattr(spec, key)).explicit:
        yield ("cuda", key), "cuda: none, and this needs a CUDA major. State a version of cuda, or set both to none."


def no_toolkit(key: str, spec: StackSpec) -> Clash | None:
    """Return the same as a clash; a library on auto is omitted with the toolkit."""
    if not request(getattr(spec, key)).explicit:
        return None
    between = (
        Fact("cuda: none", "the specification"),
        Fact("cudnn or nccl is requested, and each is built for one CUDA major", "the specification"),
    )
    because = "without a CUDA toolkit there is no CUDA major to choose cuDNN and NCCL for"
    return Clash(component="cuda", rule="R7", between=between, because=because)


def no_release(
    component: str,
    title: str,
    rule: str,
    requested: str,
    cuda_major: int,
    known: tuple[str, ...],
    other: int | None = None,
) -> Clash:
    """Return the clash of a request without a release for this CUDA major.

    known: all versions in the tables. other: the CUDA major that it was built for.
    """
    parsed = request(requested)
    between = (
        Fact(f"{title} {requested} is requested", "the specification"),
        Fact(f"no such release for CUDA {cuda_major} is in the tables", "cudnn-matrix, nccl-mk"),
    )
    return Clash(
        component=component,
        rule=rule,
        between=between,
        because=f"no {title} {requested} for CUDA {cuda_major} is known",
        unknown=not other and not any(parsed.matches(version) for version in known),
        way=f"cuda {other}, for which it is built" if other else "",
    )


@lru_cache(maxsize=4096)
def numeric(version: str) -> int:
    """Return a version of up to four numbers as one number that sorts like it."""
    numbers = (*parse(version).release, 0, 0, 0, 0)[:4]
    return int("".join(f"{number:05d}" for number in numbers))
