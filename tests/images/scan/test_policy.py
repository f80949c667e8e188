"""The policy of `gpucheck image scan`: what fails, and exceptions with a reason and an end."""

from datetime import date, datetime, timedelta, timezone

import pytest

from gpucheck.images.scan import FILE, evaluate, read_policy
from gpucheck.images.scanners import read_trivy
from gpucheck.images.versions import VersionsError, read_versions
from gpucheck.model import Verdict
from tests.images.scan.policies import GOOD, ROOT, policy_with
from tests.images.scan.recorded import TRIVY, version_of


def verdicts(checkout, **changes):
    """The findings about the recorded Trivy result under a changed policy."""
    policy_with(checkout, **changes)
    policy = read_policy(checkout)
    result = read_trivy(TRIVY, version_of())
    variant = read_versions(ROOT).variant("torch-cpu")
    return list(evaluate("torch-cpu", variant, policy, result, [], datetime.now(timezone.utc)))


def test_an_exception_with_reason_and_time_left_passes(checkout):
    other = {**GOOD, "id": "CVE-2024-6345", "package": "setuptools", "variants": ["torch-cpu"]}
    passed, _ = verdicts(checkout, exceptions=[GOOD, other])

    assert passed.verdict is Verdict.PASS
    assert passed.seen == "3 vulnerabilities, none that fails, 2 accepted"
    assert passed.evidence[0].endswith(f"accepted until {GOOD['expires']}: the parser is never reached")


@pytest.mark.parametrize("change", [{"variants": ["torch-cu132"]}, {"package": "openssl"}])
def test_an_exception_of_another_variant_or_package_does_not_count(checkout, change):
    failed, _ = verdicts(checkout, exceptions=[{**GOOD, **change}])

    assert failed.seen == "1 CRITICAL, 1 HIGH of 3 vulnerabilities in torch-cpu"


def test_an_expired_exception_no_longer_holds(checkout):
    late = date.today() - timedelta(days=1)
    failed, *_ = verdicts(checkout, exceptions=[{**GOOD, "expires": late}])

    assert failed.verdict is Verdict.FAIL
    assert failed.evidence[0] == f"the exception for CVE-2019-18224 expired on {late} (images/scan.yml)"


def test_an_expired_exception_that_nothing_needs_is_to_be_removed(checkout):
    late = date.today() - timedelta(days=1)
    found = verdicts(checkout, severities=["NEGLIGIBLE"], exceptions=[{**GOOD, "expires": late}])

    assert [one.verdict for one in found] == [Verdict.PASS, Verdict.WARN, Verdict.PASS]
    assert found[1].fix == "remove it from images/scan.yml"


def test_without_only_fixable_one_without_a_fix_fails_too(checkout):
    failed, _ = verdicts(checkout, only_fixable=False, severities=["LOW"])

    assert failed.evidence == ("LOW CVE-2019-18276: bash 5.0-4, no fix yet",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exceptions": [{"id": "CVE-1", "expires": date.today()}]}, "required key reason is missing"),
        ({"exceptions": [{**GOOD, "reason": "todo"}]}, "CVE-2019-18224: reason: state in a sentence"),
        ({"exceptions": [{"id": "CVE-1", "reason": "never reached by us"}]}, "required key expires is missing"),
        ({"exceptions": [{**GOOD, "expires": "soon"}]}, "expires"),
        ({"exceptions": [{**GOOD, "until": date.today()}]}, "no such key: until"),
        ({"exceptions": ["CVE-2026-1"]}, "exceptions"),
        ({"severities": ["GRAVE"]}, "GRAVE"),
        ({"severities": []}, "nothing would fail"),
        ({"database_days": 0}, "must be 1 or more"),
    ],
)
def test_a_policy_that_does_not_hold_is_one_message_with_its_place(checkout, images, change, words):
    policy_with(checkout, **change)

    status, _, err = images()

    assert status == 64
    assert words in err
    assert "images/scan.yml" in err
    assert "Traceback" not in err


def test_a_damaged_or_missing_policy_is_one_message(checkout):
    (checkout / FILE).unlink()
    with pytest.raises(VersionsError, match="cannot be read"):
        read_policy(checkout)
    (checkout / FILE).write_text("exceptions: {")
    with pytest.raises(VersionsError, match="not YAML"):
        read_policy(checkout)


def test_the_policy_of_the_checkout_holds_today():
    policy = read_policy(ROOT)

    assert policy.severities == ("CRITICAL", "HIGH")
    assert [one.id for one in policy.exceptions if one.expires < date.today()] == []
