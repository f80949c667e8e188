"""One finding about the container that this process runs in."""

from typing import Any

from gpucheck.model import Finding, Verdict

NAME = "image"


def finding(verdict: Verdict, seen: str, wanted: str, **more: Any) -> Finding:
    """A finding of this check. A cause that is named here is certain, if nothing else is given: it was read."""
    subject = more.pop("subject", "host")
    confidence = more.pop("confidence", "certain")
    return Finding(
        check=NAME,
        verdict=verdict,
        subject=subject,
        seen=seen,
        wanted=wanted,
        confidence=confidence if more.get("cause") else None,
        **more,
    )
