"""All rules over one machine: each sees what the earlier ones explained, so that a root cause is told once."""

from dataclasses import replace

from gpucheck.diagnose._rule import Case
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.rates import Rates
from gpucheck.diagnose.rules import all_rules
from gpucheck.model.finding import Finding
from gpucheck.model.observations import Observations


def diagnose(seen: Observations) -> tuple[Finding, ...]:
    """Findings about one machine, in the order the rules look: integrity, then states, then bandwidth."""
    machine = Machine(seen)
    case = Case(machine, Rates(machine))
    for rule in all_rules():
        found = list(rule.judge(case))
        case = replace(
            case,
            explained=case.explained.union(*(diagnosis.explains for diagnosis in found)),
            earlier=(*case.earlier, *(diagnosis.finding for diagnosis in found)),
        )
    return case.earlier
