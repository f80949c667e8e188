"""Resolve driver, CUDA, cuDNN, NCCL, torch and TensorFlow for a host, with the reasons.

Pure functions: facts, specifications and tables in, one compatible set or a reasoned rejection out.
"""

from gpucheck.stack.facts import FactsError, HostFacts, read_facts, read_facts_file
from gpucheck.stack.resolve import resolve, resolve_target
from gpucheck.stack.targets import target_of
from gpucheck.stack.types import Conflict, Refusal, StackSet, Target, UnknownInput
from gpucheck.stack.wish import Wish, WishError, parse_wish, read_wish, wants

__all__ = [
    "Conflict",
    "FactsError",
    "HostFacts",
    "Refusal",
    "StackSet",
    "Target",
    "UnknownInput",
    "Wish",
    "WishError",
    "parse_wish",
    "read_facts",
    "read_facts_file",
    "read_wish",
    "resolve",
    "resolve_target",
    "target_of",
    "wants",
]
