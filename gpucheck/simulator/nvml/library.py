"""Compile the simulated NVML library with the system's C compiler."""

import hashlib
import platform
from pathlib import Path

from gpucheck.simulator.compiler import FLAGS, SHIPPED, compile_sources, compiled, install
from gpucheck.simulator.nvml.exports import Export, exports, unsimulated_rows, version_script

__all__ = ["SHIPPED", "SONAME", "SOURCES", "build_library", "compile_library"]

SOURCES = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"


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


def compile_library(folder: Path, chosen: tuple[Export, ...], flags: tuple[str, ...] = ()) -> Path:
    """Compile ``libnvidia-ml.so`` with these exports into ``folder``, with additional compiler ``flags``.

    Raises OSError as ``build_library`` does.
    """
    (folder / "unsimulated.inc").write_text(unsimulated_rows(chosen), encoding="utf-8")
    script = folder / "exports.map"
    script.write_text(version_script(chosen), encoding="utf-8")
    library = folder / "libnvidia-ml.so"
    own = (*FLAGS, f"-Wl,-soname,{SONAME}", *flags, f"-I{folder}", f"-Wl,--version-script={script}")
    return compile_sources("NVML", library, own, _sources())


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _compiled(chosen: tuple[Export, ...]) -> Path:
    digest = hashlib.sha256(" ".join((*FLAGS, SONAME, platform.machine(), str(chosen))).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    key = digest.hexdigest()[:24]
    return compiled(key, "libnvidia-ml.so", lambda partial: compile_library(partial, chosen))
