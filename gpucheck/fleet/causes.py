"""Common factors of unhealthy hosts: associations that are unlikely to be chance, reported as no more than that."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gpucheck.fleet.statistics import fisher
from gpucheck.model import CommonCause, FleetRow, Outlier, Verdict, by_root, metric_title

# Two hosts share something by chance in any fleet.
ENOUGH_FAILING = 3
# After correction for everything that was tried.
LIKELY = 0.01
# An attribute that marks fewer of the failing hosts explains little, unless all hosts that have it fail:
# a rack that is slow as a whole is a cause of its own, whatever else ails elsewhere.
COVERS = 0.5
MARKS = 0.8
SICK = (Verdict.FAIL, Verdict.WARN)

Having = dict[tuple[str, str], frozenset[str]]


def common_causes(rows: Sequence[FleetRow], outliers: Sequence[Outlier]) -> tuple[CommonCause, ...]:
    """Return the attributes associated with each sign of a fault, the least likely chance first."""
    having = _having(rows)
    everyone = frozenset(row.host for row in rows if row.attributes)
    signs = {sign: hosts & everyone for sign, hosts in _signs(rows, outliers).items()}
    signs = {sign: hosts for sign, hosts in signs.items() if ENOUGH_FAILING <= len(hosts) < len(everyone)}
    tried = max(1, len(signs) * len(having))
    found = [cause for sign, failing in signs.items() for cause in _of_sign(sign, failing, everyone, having, tried)]
    return tuple(sorted(found, key=lambda cause: (cause.p, cause.sign, cause.attributes)))


def _having(rows: Sequence[FleetRow]) -> Having:
    """Hosts by attribute and value; one that a single host has, or all have, explains nothing."""
    count = Counter(key for row in rows for key in _attributes(row))
    telling = {key for key, hosts in count.items() if 1 < hosts < len(rows)}
    hosts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        for key in _attributes(row):
            if key in telling:
                hosts[key].add(row.host)
    return {key: frozenset(found) for key, found in hosts.items()}


def _attributes(row: FleetRow) -> dict[tuple[str, str], None]:
    """Names and values, each once, in the row's own order."""
    return {(name, value): None for name, values in row.attributes.items() for value in values}


def _signs(rows: Sequence[FleetRow], outliers: Sequence[Outlier]) -> dict[str, frozenset[str]]:
    """Hosts by what is wrong with them; signs of the very same hosts are one."""
    signs: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for finding, _ in by_root(row.problems)[0]:
            if finding.verdict in SICK and finding.check != "fleet":
                signs[f"{finding.check} ({finding.cause})" if finding.cause else finding.check].add(row.host)
    for outlier in outliers:
        signs[f"{'low' if outlier.percent < 0 else 'high'} {metric_title(outlier.metric)}"].add(outlier.host)
    same: dict[frozenset[str], list[str]] = defaultdict(list)
    for sign, hosts in signs.items():
        same[frozenset(hosts)].append(sign)
    return {" and ".join(sorted(names)): hosts for hosts, names in same.items()}


def _of_sign(
    sign: str, failing: frozenset[str], everyone: frozenset[str], having: Having, tried: int
) -> Iterator[CommonCause]:
    """Merge attributes that the same hosts have: the numbers do not distinguish them."""
    others = len(everyone) - len(failing)
    same: dict[tuple[float, frozenset[str]], list[str]] = defaultdict(list)
    for (name, value), hosts in having.items():
        failing_with = len(hosts & failing)
        if failing_with < ENOUGH_FAILING or (
            failing_with < COVERS * len(failing) and failing_with < MARKS * len(hosts)
        ):
            continue
        p = min(1.0, tried * fisher(failing_with, len(failing), len(hosts) - failing_with, others))
        if p < LIKELY:
            same[p, hosts].append(f"{name} = {value}")
    strongest = sorted(same.items(), key=lambda item: (item[0][0], item[1]))[:3]
    for (p, hosts), names in strongest:
        failing_with = len(hosts & failing)
        yield CommonCause(
            sign=sign,
            attributes=tuple(sorted(names)),
            sick=len(failing),
            sick_with=failing_with,
            others=others,
            others_with=len(hosts) - failing_with,
            p=p,
            text=_words(sign, sorted(names), failing_with, len(failing), len(hosts) - failing_with, others, p),
        )


def _words(
    sign: str, names: list[str], failing_with: int, failing: int, others_with: int, others: int, p: float
) -> str:
    of = f"All {failing}" if failing_with == failing else f"{failing_with} of the {failing}"
    shared = " and ".join(names) if len(names) < 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    apart = "; the numbers do not distinguish these" if len(names) > 1 else ""
    return (
        f"{of} hosts with {sign} have {shared}, as have {others_with} of the {others} others"
        f" (p = {p:.1g} after correction){apart}. This is an association, not proof of a cause: check there first."
    )
