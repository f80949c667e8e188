"""Hosts against their own earlier numbers: who fell behind while the others did not."""

import random

import pytest

from gpucheck import fleet
from gpucheck.model import Verdict
from tests.fleet.reports import report
from tests.fleet.test_digests import measured

OLD, NEW = "2026-11-20T12:00:00+00:00", "2026-11-21T12:00:00+00:00"


def merged(rates, started=NEW, previous=None, seed=0, **changes):
    """rates: by host, a factor of the matrix rate; each run has noise of its own."""
    rng = random.Random(seed)
    reports = [
        report(
            f"n{i:02d}", measurements=measured(tflops=700.0 * base * rng.gauss(1, 0.003)), started=started, **changes
        )
        for i, base in enumerate(rates)
    ]
    return fleet.merge([fleet.row(each, digest=f"{each.host} {seed}") for each in reports], previous=previous)


# Healthy hosts differ by 20 %, so that none is an outlier among the others.
BASES = [0.9 + 0.02 * i for i in range(12)]


def test_a_host_that_fell_behind_is_named_although_others_are_slower():
    before = merged(BASES, OLD)
    now = merged([base * (0.9 if i == 11 else 1.0) for i, base in enumerate(BASES)], previous=before, seed=1)

    (outlier,) = now.outliers
    assert (outlier.host, outlier.metric, outlier.since) == ("n11", "compute.gemm.bf16.tflops", OLD)
    assert outlier.percent == pytest.approx(-10, abs=1)
    row = next(row for row in now.hosts if row.host == "n11")
    assert row.verdict is Verdict.WARN
    assert f"its own value of {OLD}" in row.problems[0].why


def test_what_changed_for_all_hosts_is_no_outlier():
    """A driver that is slower: every host changes alike."""
    before = merged(BASES, OLD)

    assert not merged([base * 0.9 for base in BASES], previous=before, seed=1).outliers


def test_noise_is_no_drift():
    before = merged(BASES, OLD)

    assert not [o for seed in range(1, 6) for o in merged(BASES, previous=before, seed=seed).outliers]


def test_the_same_reports_again_are_not_compared():
    before = merged(BASES, OLD)

    assert not merged(BASES, previous=before).outliers


def test_few_hosts_have_no_normal_change():
    before = merged(BASES[:4], OLD)

    assert not merged([0.5, *BASES[1:4]], previous=before, seed=1).outliers


def test_an_outlier_among_the_hosts_is_not_named_twice():
    before = merged([1.0] * 12, OLD)
    (outlier,) = merged([0.8] + [1.0] * 11, previous=before, seed=1).outliers

    assert (outlier.host, outlier.since) == ("n00", None)
