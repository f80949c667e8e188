"""Options of the nvidia kernel module: from stack.yml to the file that modprobe reads."""

import re

from gpucheck.knowledge.strict import Value

PATH = "/etc/modprobe.d/gpucheck-nvidia.conf"
NAME = re.compile(r"NVreg_[A-Za-z0-9]+")
# Forms that the driver documents: numbers, words, and lists such as PeerMappingOverride=1;Another=0x10.
VALUE = re.compile(r"[\w.,:;=+-]+")


def read_module_options(value: Value) -> dict[str, str]:
    """Read ``none``, or options by name. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return {}
    found = {}
    for name, inner in value.pairs():
        if not NAME.fullmatch(name):
            raise inner.problem("is not an nvidia module option: these begin with NVreg_ (modinfo nvidia lists them)")
        text = inner.text().strip()
        if not VALUE.fullmatch(text):
            raise inner.problem(f"{text!r} is not valid in a modprobe file: use a number, a word, or name=value;...")
        found[name] = text
    return found


def options_line(options: dict[str, str]) -> str:
    """Return the line of modprobe.d, ``options nvidia NVreg_A=1 NVreg_B="x=1;y=2"``."""
    words = (f"{name}={value}" if value.isalnum() else f'{name}="{value}"' for name, value in sorted(options.items()))
    return f"options nvidia {' '.join(words)}\n"
