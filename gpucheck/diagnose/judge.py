"""One machine's observations to its diagnosis: weigh the explanations, then add what needs no weighing."""

from gpucheck.diagnose.findings import Findings
from gpucheck.diagnose.hypotheses import all_hypotheses
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import numbers
from gpucheck.diagnose.ranking import decided, explanations
from gpucheck.diagnose.search import Search
from gpucheck.diagnose.statements import all_statements
from gpucheck.diagnose.statements._case import Case
from gpucheck.diagnose.statements.rates import nothing
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.diagnosis.ranking import Judgement
from gpucheck.model.finding import Finding

MOST_INSTANCES = 120  # the most probable first; a machine of 128 GPUs may have thousands


def evaluate(seen: Observations) -> Judgement:
    """Findings about one machine, causes first, and the ranking behind them."""
    machine = Machine(seen)
    every = (i for hypothesis in all_hypotheses() for i in hypothesis.instances(machine))
    instances = tuple(sorted(every, key=lambda instance: -instance.prior)[:MOST_INSTANCES])
    search = Search(machine, instances)
    ranking = search.ranking()
    weighed = Findings(machine, ranking).all()
    top = ranking[0].world
    fits = tuple((n, predicted) for n in numbers(machine) if (predicted := top.predict(n)) is not None)
    stated = tuple(all_statements(Case(machine, top, fits, tuple(weighed))))
    return Judgement(
        findings=(*weighed, *stated) or (() if machine.count == 1 else (nothing(machine),)),
        ranking=explanations(ranking, search.numbers),
        gpus=tuple(machine.label(i) for i in range(machine.count)),
        decided=decided(ranking, search.numbers),
    )


def diagnose(seen: Observations) -> tuple[Finding, ...]:
    """The findings alone."""
    return evaluate(seen).findings
