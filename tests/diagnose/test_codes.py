"""Rules that choose a code by a table pass the values of every row."""

import pytest

from gpucheck.checks.pcie.link import FIELDS
from gpucheck.diagnose.rules.collectives import BELOW
from gpucheck.diagnose.rules.copies import CODES
from tests.knowledge.test_codes import OF_SUBJECT, places


@pytest.mark.parametrize(
    ("codes", "values"),
    [
        (BELOW.values(), {"collective", "basis"}),
        ((with_cause for with_cause, _ in CODES.values()), {"basis", "suspect"}),
        ((without for _, without in CODES.values()), {"basis"}),
        ((code for row in FIELDS.values() for code in row[1:]), {"now", "limit"}),
    ],
)
def test_rows_of_a_table_need_the_values_that_its_rule_passes(codes, values):
    assert {code: places(code) - values - OF_SUBJECT for code in codes if places(code) - values - OF_SUBJECT} == {}
