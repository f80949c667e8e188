"""GPUs of the host that a command did not measure, because NVML does not list them or does not answer."""

from typing import TypeVar

from msgspec.structs import replace

from gpucheck.checks._nvml import on_the_bus
from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.model import NvmlFailure
from gpucheck.model.answer import Answer
from gpucheck.model.facts import Source
from gpucheck.model.finding import GOOD
from gpucheck.run.conclusion import conclude
from gpucheck.run.step import evaluated

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


def with_absent(answer: AnyAnswer, source: Source) -> AnyAnswer:
    """Return an answer about all GPUs of a host with what is wrong with those that it leaves out.

    The others alone would pass: with one GPU fewer, or with CPU processes in the place of all.
    """
    facts = source.read("nvml", "pci")
    if not on_the_bus(facts):
        return answer
    check = driver.CHECK if isinstance(facts.nvml, NvmlFailure) else inventory.CHECK
    found = [finding for finding in evaluated(check, source) if finding.verdict not in GOOD]
    if not found:
        return answer
    findings, verdict, counts = conclude((*found, *answer.findings), facts.gpus)
    return replace(answer, findings=findings, verdict=verdict, counts=counts)
