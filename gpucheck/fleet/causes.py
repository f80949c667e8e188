"""Common factors of unhealthy hosts: associations that are unlikely to be chance, reported as no more than that."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log

from gpucheck.fleet.outliers import fisher, log_choose
from gpucheck.model import Verdict, by_root
from gpucheck.model.fleet import CommonCause, FleetRow, Outlier
from gpucheck.model.measurements import metric_title
from gpucheck.printable import some

# Two hosts share something by chance in any fleet.
ENOUGH_FAILING = 3
# After correction for everything that was tried.
LIKELY = 0.01
# An attribute that marks fewer of the failing hosts explains little, unless all hosts that have it fail:
# a rack that is slow as a whole is a cause of its own, whatever else ails elsewhere.
COVERS = 0.5
MARKS = 0.8
# What a switch does to the links of its cards.
OF_LINKS = ("nic-down", "nic-rate", "nic-errors", "nic-congestion", "nic-flap")
SICK = (Verdict.FAIL, Verdict.WARN)
NAMED = 3

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


def shared_rails(rows: Sequence[FleetRow]) -> tuple[CommonCause, ...]:
    """Return the places at which network cards of many hosts are unhealthy: equal places lead to the same leaf switch.

    A host with most of its cards unhealthy is left out: it has a reason of its own. p: that so many of the unhealthy
    hosts have it at one place by chance, for any place (an upper bound).
    """
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    rails: set[str] = set()
    for row in rows:
        own = row.attributes.get("nic-rail", ())
        leads = [finding for finding, _ in by_root(row.problems)[0] if finding.verdict in SICK]
        sick = {(one.cause, one.subject.removeprefix("nic:")) for one in leads if one.cause in OF_LINKS}
        rails |= {*own}
        if 2 * len({place for _, place in sick}) <= len(own):
            for cause, place in sick & {(cause, place) for cause in OF_LINKS for place in own}:
                found[cause][place].add(row.host)
    causes = []
    for cause, places in sorted(found.items()):
        everyone = len(set().union(*places.values()))
        for place, hosts in sorted(places.items()):
            many = len(hosts)
            p = min(1.0, exp(log_choose(everyone, many) - (many - 1) * log(len(rails))))
            if many >= ENOUGH_FAILING and p < LIKELY:
                text = (
                    f"{many} of the {everyone} hosts with {cause} have it at the same network card, {place}"
                    f" (p = {p:.1g}): check the leaf switch of this rail first, then cables, transceivers and cards."
                )
                causes.append(
                    CommonCause(
                        sign=cause,
                        attributes=(f"nic = {place}",),
                        sick=everyone,
                        sick_with=many,
                        others=len(rows) - everyone,
                        others_with=0,
                        p=p,
                        text=text,
                    )
                )
    return tuple(causes)


def _having(rows: Sequence[FleetRow]) -> Having:
    """Hosts by attribute and value; one that a single host has, or all have, explains nothing."""
    hosts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        for name, values in row.attributes.items():
            for value in values:
                hosts[name, value].add(row.host)
    return {key: frozenset(found) for key, found in hosts.items() if 1 < len(found) < len(rows)}


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
        others_with = len(hosts) - failing_with
        of = f"All {failing_with}" if failing_with == len(failing) else f"{failing_with} of the {len(failing)}"
        apart = "; the numbers do not distinguish these" if len(names) > 1 else ""
        text = (
            f"{of} hosts with {sign} have {some(sorted(names), NAMED)}, as have {others_with} of the {others} others"
            f" (p = {p:.1g} after correction){apart}. This is an association, not proof of a cause: check there first."
        )
        yield CommonCause(
            sign=sign,
            attributes=tuple(sorted(names)),
            sick=len(failing),
            sick_with=failing_with,
            others=others,
            others_with=others_with,
            p=p,
            text=text,
        )
