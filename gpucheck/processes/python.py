"""The words that start a Python process: it imports from where this one does, and never from the working directory.

``-m`` and ``-c`` put the working directory first, which may be another user's, and ``-P`` needs Python 3.11.
"""

import sys
from pathlib import Path

# The directory of this package, which may not be installed: python -m gpucheck in a checkout.
ROOT = str(Path(__file__).parents[2])
# Of a -c program whose first argument is ROOT; sys is a builtin module.
PLACES = (
    "import sys; sys.path[:] = filter(None, sys.path); root = sys.argv.pop(1); "
    "sys.path[:0] = [] if root in sys.path else [root]; "
)
MODULE = f"{PLACES}import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def python_module(name: str) -> tuple[str, ...]:
    """Return the words that run a module with this Python, as ``-m`` does; its arguments go after them."""
    return (sys.executable, "-c", MODULE, ROOT, name)
