"""Container runtime: can the container engines give the GPUs to a container?

Sources: the container toolkit's packages; the runtimes in /etc/docker/daemon.json and in the configuration of
containerd; CDI specifications in /etc/cdi and /var/run/cdi, which Docker 28.2 and newer and Podman read by themselves.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host, PackageVersion

NAME = "container-runtime"
TOOLKIT = "nvidia-container-toolkit"
DOCKER = ("docker.io", "docker-ce", "moby-engine")
ENGINES = (*DOCKER, "podman", "containerd.io")
DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
# nvidia-ctk 1.18 and newer write a file of their own here, which the main file imports.
CONTAINERD_PARTS = "/etc/containerd/conf.d"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Packages (None: no package database), the engines' configuration as text, and the CDI specifications.

    unreadable: a configuration file that is there and cannot be read. containerd: read only where Docker is not there.
    """

    packages: tuple[PackageVersion, ...] | None
    daemon: str | None
    cdi: tuple[str, ...]
    containerd: str | None = None
    unreadable: str | None = None
    container: str | None = None


def probe(host: Host) -> Values:
    packages, daemon = host.packages([TOOLKIT, *ENGINES]), host.read_text(DAEMON)
    names = {package.name for package in packages or ()}
    alone = "containerd.io" in names and not names & set(DOCKER)
    containerd = host.read_text(CONTAINERD) if alone else None
    parts = host.list_names(CONTAINERD_PARTS) or () if alone else ()
    hidden = daemon is None and names & set(DOCKER) and "daemon.json" in (host.list_names("/etc/docker") or ())
    return Values(
        packages=packages,
        daemon=daemon,
        cdi=tuple(f"{folder}/{name}" for folder in CDI_FOLDERS for name in host.list_names(folder) or ()),
        containerd="\n".join((containerd or "", *parts)) if alone else None,
        unreadable=DAEMON if hidden else None,
        container=host.system().container,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    if values.container is not None:
        yield Subject(check=NAME).skips("software.engines-outside-container", container=values.container)
        return
    if values.packages is None:
        yield Subject(check=NAME).unknown("software.packages-unreadable")
        return
    engines = [package.name for package in values.packages if package.name in ENGINES]
    toolkit = next((package for package in values.packages if package.name == TOOLKIT), None)
    runtimes = _runtimes(values.daemon)
    subject = Subject(
        check=NAME,
        evidence=(
            f"engines: {', '.join(engines) or 'none'}; {TOOLKIT}: {toolkit.version if toolkit else 'not installed'}",
            f"{DAEMON}: {_described(values, runtimes)}",
            f"CDI: {', '.join(values.cdi) or 'none'}",
        ),
    )
    cdi = any("nvidia" in name for name in values.cdi)
    configured = cdi or "nvidia" in (runtimes or ()) or "nvidia" in (values.containerd or "")
    if runtimes is None:
        yield subject.fails("software.docker-config-invalid", f"{DAEMON} is not JSON", path=DAEMON)
    elif not engines:
        yield subject.skips("software.no-container-engine")
    elif toolkit is None:
        yield subject.skips("software.no-container-toolkit")
    elif configured:
        yield subject.passes("CDI specification for NVIDIA GPUs" if cdi else "NVIDIA runtime configured")
    elif values.unreadable:
        yield subject.unknown("software.docker-config-unreadable", path=values.unreadable)
    else:
        engine = "docker" if set(engines) & set(DOCKER) else "containerd" if "containerd.io" in engines else "podman"
        code = "software.engine-without-cdi" if engine == "podman" else "software.engine-not-configured"
        yield subject.warns(code, "container engines not configured for NVIDIA GPUs", engine=engine)


def _described(values: Values, runtimes: tuple[str, ...] | None) -> str:
    if values.unreadable:
        return "not readable"
    if runtimes is None:
        return "not JSON"
    return f"runtimes {', '.join(runtimes)}" if runtimes else "no runtimes" if values.daemon else "not there"


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
