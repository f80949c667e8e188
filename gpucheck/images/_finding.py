"""A finding about the container of this process."""

from typing import Any

from gpucheck.model import Finding, Verdict

NAME = "image"


def finding(verdict: Verdict, seen: str, wanted: str, **more: Any) -> Finding:
    """Return a finding of this check. A cause is certain unless stated otherwise, as it was observed directly.

    Without a cause on the host, the remedy is another image or another start of the container.
    """
    subject = more.pop("subject", "host")
    confidence = more.pop("confidence", "certain")
    if verdict in (Verdict.WARN, Verdict.FAIL) and not more.get("cause"):
        more = {"action": "change-setting", "owner": "user", **more}
    return Finding(
        check=NAME,
        verdict=verdict,
        subject=subject,
        seen=seen,
        wanted=wanted,
        confidence=confidence if more.get("cause") else None,
        **more,
    )
