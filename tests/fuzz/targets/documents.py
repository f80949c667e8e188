"""What is written for gpucheck: observations, expectations, labels, stack.yml, lock, facts, machine profiles."""

from pathlib import Path

from gpucheck import comparison, stack
from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.stack.facts import read_facts
from tests.fuzz.oracles import Wrong, refusing, shown_diagnosis, terminal
from tests.fuzz.seeds import attacks, documents, own
from tests.fuzz.target import file, target


@target(seeds=documents.observations, format="yaml", attacks=attacks.observations)
def observations(data: bytes) -> None:
    """diagnose --observations."""
    with refusing():
        seen = read(data)
        shown_diagnosis(diagnose(seen))


@target(seeds=lambda: (documents.EXPECTATIONS,), format="yaml", attacks=attacks.yaml)
def expectations(data: bytes) -> None:
    """verify --expect, compared with a report."""
    with refusing():
        shown_diagnosis(tuple(comparison.evaluate(own.a_report(), comparison.read(data, "site.yml"))))


@target(seeds=lambda: (documents.CSV,), format="text")
def labels_csv(data: bytes) -> None:
    """fleet report --labels."""
    from gpucheck.fleet.row import labelled, read_labels

    with refusing(ValueError, OSError):
        labelled(own.merged().hosts, read_labels(file(data, "labels.csv")))


@target(seeds=documents.specs, format="yaml", attacks=attacks.yaml)
def spec(data: bytes) -> None:
    """stack.yml."""
    with refusing():
        stack.read_spec(file(data, "stack.yml"))


@target(seeds=own.locks, format="yaml", attacks=attacks.yaml)
def lock_file(data: bytes) -> None:
    """stack plan --lock."""
    from gpucheck.stack.lock import read_lock
    from gpucheck.stack.plan import plan

    with refusing():
        plan(read_lock(data.decode(errors="replace"), "stack.lock.yml"), host="node01")


@target(seeds=own.facts, format="json", attacks=attacks.facts)
def facts(data: bytes) -> None:
    """Facts of a host into a lock, a lock into a plan. One host's facts must not end it for the others."""
    from gpucheck.stack.lock import lock, read_lock, write_lock
    from gpucheck.stack.plan import plan
    from gpucheck.stack.text import group_line, refused_text

    with refusing():
        hosts = read_facts(data, "facts.json")
        if len({one.host for one in hosts}) != len(hosts) or len(hosts) > 8:
            return
        with refusing():
            made = lock(stack.StackSpec(), list(hosts))
            again = read_lock(write_lock(made), "stack.lock.yml")
            for name in [*again.refused, *(name for group in again.groups.values() for name in group.hosts)]:
                if Path(name).name != name or name in (".", ".."):
                    raise Wrong("a host name that is a path", ascii(name[:60]))
                plan(again, host=name)
            for line in (*refused_text(made), *(group_line(name, group) for name, group in made.groups.items())):
                terminal(line, "stack lock's lines")


@target(seeds=documents.profiles, format="yaml", attacks=attacks.yaml)
def profile(data: bytes) -> None:
    """simulate FILE.yml: read and checked, not made."""
    from gpucheck.simulator.machine.loading import load

    with refusing(ValueError, LookupError, OSError):
        load(str(file(data, "machine.yml")))
