"""Compile the simulated NVML library."""

import platform
from collections.abc import Sequence
from pathlib import Path

from gpucheck.simulator.compiler import compile_sources, compiled, install, source_key
from gpucheck.simulator.nvml.exports import Export, exports, unsimulated_rows, version_script

SOURCES = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"
LIBRARY = "libnvidia-ml.so"


def build_library(directory: Path, version: str, release: str | None = None) -> Path:
    """Put ``libnvidia-ml.so.<version>`` and the link ``libnvidia-ml.so.1`` into ``directory``; return the former.

    The library learns its version from its file name, so that one compilation (cached by content) serves every version
    that exports the same functions. release: the version whose functions it exports, where not its own.
    Raises OSError, with the whole message in args[0], when there is no compiler or it rejects the source.
    """
    if not version or "/" in version:
        raise ValueError(f"libnvidia-ml.so.{version}: not a driver version")
    chosen = exports(release or version)
    if not chosen:
        raise ValueError(f"libnvidia-ml.so.{version}: no function is known that an NVML this old exports")
    return install(_compiled(chosen), directory, "libnvidia-ml.so", version)


def compile_library(
    folder: Path, chosen: tuple[Export, ...], flags: Sequence[str] = (), compiler: Sequence[str] = ()
) -> Path:
    """Compile ``libnvidia-ml.so`` with these exports into ``folder``, with additional compiler ``flags``.

    Raises OSError as ``build_library`` does.
    """
    (folder / "unsimulated.inc").write_text(unsimulated_rows(chosen), encoding="utf-8")
    script = folder / "exports.map"
    script.write_text(version_script(chosen), encoding="utf-8")
    own = (f"-Wl,-soname,{SONAME}", *flags, f"-I{folder}", f"-Wl,--version-script={script}")
    return compile_sources("NVML", folder / LIBRARY, own, sorted(SOURCES.glob("*.c")), compiler=compiler)


def nvml_key(machine: str, chosen: tuple[Export, ...]) -> str:
    """Return the key of the library with these exports for a machine (x86_64)."""
    return source_key((SONAME, machine, str(chosen)), sorted(SOURCES.glob("*.[ch]")))


def _compiled(chosen: tuple[Export, ...]) -> Path:
    key = nvml_key(platform.machine(), chosen)
    return compiled(key, LIBRARY, lambda partial: compile_library(partial, chosen))
