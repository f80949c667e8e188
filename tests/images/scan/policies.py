"""Policies of a scan: that of the checkout, changed."""

from datetime import date, timedelta
from pathlib import Path

import yaml

from gpucheck.images.scan import FILE

ROOT = Path(__file__).parents[3]
POLICY = yaml.safe_load((ROOT / FILE).read_text())
GOOD = {"id": "CVE-2019-18224", "reason": "the parser is never reached", "expires": date.today() + timedelta(days=30)}


def policy_with(checkout, **changes):
    (checkout / FILE).unlink()
    (checkout / FILE).write_text(yaml.safe_dump({**POLICY, **changes}))
