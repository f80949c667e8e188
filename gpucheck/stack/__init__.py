"""Resolve driver, CUDA, cuDNN, NCCL, torch and TensorFlow for a host, with the reasons.

Pure functions: their input is facts, specifications and tables, the result is one compatible set or a conflict.
"""

from gpucheck.stack.facts import FactsError, HostFacts, read_facts, target_of
from gpucheck.stack.resolve import resolve, resolve_target
from gpucheck.stack.spec import SpecError, StackSpec, parse_spec, read_spec, wants
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Refusal, Target, UnknownInput
