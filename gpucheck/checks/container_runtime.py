"""Container runtime: can Docker or containerd hand the GPUs to a container?

Sources: the container toolkit's packages; the runtime named in /etc/docker/daemon.json; CDI specifications in /etc/cdi
and /var/run/cdi, which the engine reads by itself (Docker 28.2 and newer) and Podman always did.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host, PackageVersion
from gpucheck.model.about import About

NAME = "container-runtime"
TOOLKIT = "nvidia-container-toolkit"
ENGINES = ("docker.io", "docker-ce", "moby-engine", "podman", "containerd.io")
DAEMON = "/etc/docker/daemon.json"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Packages, Docker's configuration as text, and the CDI specifications."""

    packages: tuple[PackageVersion, ...]
    daemon: str | None
    cdi: tuple[str, ...]


def probe(host: Host) -> Values:
    """Ask the package database and read the configuration."""
    return Values(
        packages=host.packages([TOOLKIT, *ENGINES]),
        daemon=host.read_text(DAEMON),
        cdi=tuple(f"{folder}/{name}" for folder in CDI_FOLDERS for name in host.list_names(folder) or ()),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host."""
    engines = [package.name for package in values.packages if package.name in ENGINES]
    toolkit = next((package for package in values.packages if package.name == TOOLKIT), None)
    runtimes = _runtimes(values.daemon)
    about = About(
        check=NAME,
        evidence=(
            f"engines: {', '.join(engines) or 'none'}; {TOOLKIT}: {toolkit.version if toolkit else None}",
            f"{DAEMON}: runtimes {', '.join(runtimes or ()) or 'none'}",
            f"CDI: {', '.join(values.cdi) or 'none'}",
        ),
    )
    configured = "nvidia" in (runtimes or ()) or any("nvidia" in name for name in values.cdi)
    if runtimes is None:
        fix = f"correct {DAEMON}: Docker does not start with it (python3 -m json.tool {DAEMON})"
        yield about.fails(
            "not JSON", "JSON", "Docker refuses a configuration that it cannot read", fix, "container-runtime"
        )
    elif not engines:
        yield about.skips("no container engine is installed")
    elif toolkit is None:
        yield about.skips("the container toolkit is not installed, so containers here are not meant to see the GPUs")
    elif configured:
        yield about.passes("the GPUs can be handed to containers")
    else:
        why = "the toolkit is installed and no engine was told: docker run --gpus all fails"
        fix = "nvidia-ctk runtime configure --runtime=docker; systemctl restart docker (or: nvidia-ctk cdi generate)"
        yield about.warns("not configured", "a runtime or a CDI specification", why, fix, "container-runtime")


def _runtimes(text: str | None) -> tuple[str, ...] | None:
    """Names of the runtimes in daemon.json; None where it is not JSON."""
    if text is None or not text.strip():
        return ()
    try:
        content = msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return None
    runtimes = content.get("runtimes") if isinstance(content, dict) else None
    return tuple(runtimes) if isinstance(runtimes, dict) else ()


CHECK = Check(NAME, frozenset({"software", "container", "quick"}), probe, evaluate)
