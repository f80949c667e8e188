"""Programs of this machine that bundles are made with."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpucheck.bundle.errors import BundleError

TAIL_LINES = 12
# Downloads of gigabytes are among them; pip's own timeout counts from byte to byte.
SECONDS = 3600
# Program -> the packages that bring it on Debian's and on Red Hat's side.
COMES_WITH = {
    "apt-ftparchive": ("apt-utils", "apt (EPEL)"),
    "createrepo_c": ("createrepo-c", "createrepo_c"),
    "modifyrepo_c": ("createrepo-c", "createrepo_c"),
}


def run(
    words: Sequence[str | Path], *, what: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> bytes:
    """Return the stdout of a program. what: the step, for the message. Raises BundleError with its last lines."""
    program = str(words[0])
    try:
        done = subprocess.run(
            words,
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError as error:
        debian, redhat = COMES_WITH.get(program, (program, program))
        raise BundleError(
            f"{what}: {program} is not installed on this host. Install {debian} (Debian, Ubuntu) or {redhat} (EL)."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BundleError(
            f"{what}: {program} did not end within {SECONDS} s. Check the network, then run make bundle again."
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()[-TAIL_LINES:]
        raise BundleError(f"{what}: {program} exited {done.returncode}: {' | '.join(lines)}")
    return done.stdout
