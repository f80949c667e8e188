"""Resolve driver, CUDA, cuDNN, NCCL, torch and TensorFlow for a host, with the reasons.

Pure functions: their input is facts, specifications and tables, the result is one compatible set or a conflict.
"""

from gpucheck.stack.facts import FactsError, HostFacts, read_facts
from gpucheck.stack.resolve import resolve, resolve_target
from gpucheck.stack.spec import SpecError, StackSpec, parse_spec, read_spec, wants
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.targets import target_of
from gpucheck.stack.types import Refusal, Target, UnknownInput

__all__ = [
    "FactsError",
    "HostFacts",
    "Refusal",
    "SpecError",
    "StackSet",
    "StackSpec",
    "Target",
    "UnknownInput",
    "parse_spec",
    "read_facts",
    "read_spec",
    "resolve",
    "resolve_target",
    "target_of",
    "wants",
]
