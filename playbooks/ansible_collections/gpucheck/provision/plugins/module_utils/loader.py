"""Whether programs find the driver's library, as the loader looks for it.

A package manager renews links and cache at the end of a transaction. One that is cut off right before leaves every
package in its planned version, and a link to the library of the version before.
"""

import os
import shutil

from .readers.files import command
from .readers.programs import cached_libraries

LIBRARY = "libnvidia-ml.so.1"
# Looked into after the cache (ld.so(8)).
FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def lost(folders=FOLDERS):
    """True where no path that the loader would try leads to a file; False also where there is no loader to ask.

    Raises Unreadable where the loader's cache is damaged.
    """
    program = shutil.which("ldconfig")
    if program is None:
        return False
    paths = [row.path for row in cached_libraries(command([program, "-p"])) if row.soname == LIBRARY]
    return not any(os.path.exists(path) for path in paths + [os.path.join(folder, LIBRARY) for folder in folders])
