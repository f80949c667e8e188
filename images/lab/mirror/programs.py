"""Where the mirror's files are, and programs that are run."""

import os
import subprocess
import sys
from pathlib import Path

BUILD, KEYS, WWW, WORK = Path("/srv/build"), Path("/srv/keys"), Path("/srv/www"), Path("/srv/work")


def run(*words, cwd=None, stdout=None, **environment):
    """Run a program; its output is shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} exited {done.returncode}:\n{done.stderr}{done.stdout or ''}")
    return done.stdout
