"""What unhealthy hosts share: an association that is unlikely to be chance, in words that do not claim more."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gpucheck.fleet.statistics import fisher
from gpucheck.model import CommonCause, FleetRow, Outlier, Verdict, metric_title

# Two hosts share something by chance in any fleet.
ENOUGH_SICK = 3
# After correction for everything that was tried.
LIKELY = 0.01
# An attribute that marks fewer of the sick than this explains little of what is wrong, unless whoever has it is sick:
# a rack that is slow as a whole is a cause of its own, whatever else ails elsewhere.
COVERS = 0.5
MARKS = 0.8
SICK = (Verdict.FAIL, Verdict.WARN)

Having = dict[tuple[str, str], frozenset[str]]


def common_causes(rows: Sequence[FleetRow], outliers: Sequence[Outlier]) -> tuple[CommonCause, ...]:
    """For every sign of sickness the attributes that go with it, the least likely chance first."""
    having = _having(rows)
    everyone = frozenset(row.host for row in rows if row.attributes)
    signs = {sign: hosts & everyone for sign, hosts in _signs(rows, outliers).items()}
    signs = {sign: hosts for sign, hosts in signs.items() if ENOUGH_SICK <= len(hosts) < len(everyone)}
    tried = max(1, len(signs) * len(having))
    found = [cause for sign, sick in signs.items() for cause in _of_sign(sign, sick, everyone, having, tried)]
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
        for finding in row.problems:
            if finding.verdict in SICK and finding.check != "fleet":
                signs[f"{finding.check} ({finding.cause})" if finding.cause else finding.check].add(row.host)
    for outlier in outliers:
        signs[f"{'low' if outlier.percent < 0 else 'high'} {metric_title(outlier.metric)}"].add(outlier.host)
    same: dict[frozenset[str], list[str]] = defaultdict(list)
    for sign, hosts in signs.items():
        same[frozenset(hosts)].append(sign)
    return {" and ".join(sorted(names)): hosts for hosts, names in same.items()}


def _of_sign(
    sign: str, sick: frozenset[str], everyone: frozenset[str], having: Having, tried: int
) -> Iterator[CommonCause]:
    """Attributes with the same hosts are one entry: the numbers cannot tell them apart."""
    others = len(everyone) - len(sick)
    same: dict[tuple[float, frozenset[str]], list[str]] = defaultdict(list)
    for (name, value), hosts in having.items():
        sick_with = len(hosts & sick)
        if sick_with < ENOUGH_SICK or (sick_with < COVERS * len(sick) and sick_with < MARKS * len(hosts)):
            continue
        p = min(1.0, tried * fisher(sick_with, len(sick), len(hosts) - sick_with, others))
        if p < LIKELY:
            same[p, hosts].append(f"{name} = {value}")
    strongest = sorted(same.items(), key=lambda item: (item[0][0], item[1]))[:3]
    for (p, hosts), every in strongest:
        # A part of the name that says what a label says adds nothing.
        names = [name for name in every if not name.startswith("host name part")] or every
        sick_with = len(hosts & sick)
        yield CommonCause(
            sign=sign,
            attributes=tuple(sorted(names)),
            sick=len(sick),
            sick_with=sick_with,
            others=others,
            others_with=len(hosts) - sick_with,
            p=p,
            text=_words(sign, sorted(names), sick_with, len(sick), len(hosts) - sick_with, others, p),
        )


def _words(sign: str, names: list[str], sick_with: int, sick: int, others_with: int, others: int, p: float) -> str:
    of = f"All {sick}" if sick_with == sick else f"{sick_with} of the {sick}"
    shared = " and ".join(names) if len(names) < 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    apart = "; the numbers do not distinguish these" if len(names) > 1 else ""
    return (
        f"{of} hosts with {sign} have {shared}, as have {others_with} of the {others} others"
        f" (p = {p:.1g} after correction){apart}. This is an association, not proof of a cause: check there first."
    )
