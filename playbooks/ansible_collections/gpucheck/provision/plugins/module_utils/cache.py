"""Package files that apt keeps after it has installed them: gigabytes of CUDA. dnf keeps none by itself.

Runs on the managed host: standard library only, Python 3.6 or newer.
"""

import contextlib
import glob
import os

ARCHIVES = "/var/cache/apt/archives"


def clean(names, packages, folder=ARCHIVES):
    """Remove the files of these packages in the version that is installed. packages: versions by name."""
    for name in sorted(set(names) & set(packages)):
        # apt writes the colon of an epoch as %3a.
        stem = "{}_{}_".format(name, packages[name].replace(":", "%3a"))
        for path in glob.glob(os.path.join(glob.escape(folder), glob.escape(stem) + "*.deb")):
            # Space that stays taken is no reason to fail a host that is as planned.
            with contextlib.suppress(OSError):
                os.unlink(path)
