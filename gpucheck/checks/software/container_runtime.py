"""Container runtime: can the container engines give the GPUs to a container?

Sources: the container toolkit's packages; the runtimes in /etc/docker/daemon.json and in the configuration of
containerd; CDI specifications in /etc/cdi and /var/run/cdi, which Docker 28.2 and newer and Podman read by themselves.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts

NAME = "container-runtime"
TOOLKIT = "nvidia-container-toolkit"
DOCKER = ("docker.io", "docker-ce", "moby-engine")
ENGINES = (*DOCKER, "podman", "containerd.io")
PACKAGES = tuple(sorted((TOOLKIT, *ENGINES)))
DOCKER_FOLDER = "/etc/docker"
DAEMON = f"{DOCKER_FOLDER}/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
# nvidia-ctk 1.18 and newer write a file of their own here, which the main file imports.
CONTAINERD_PARTS = "/etc/containerd/conf.d"
NOT_CONFIGURED = {
    "docker": "software.docker-without-runtime",
    "containerd": "software.engine-not-configured",
    "podman": "software.engine-without-cdi",
}
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def more(facts: Facts) -> Iterator[str]:
    """Further needs: the files of containerd where Docker is not there, and whether Docker's own file is there."""
    if _containerd_alone(facts):
        yield from (f"text:{CONTAINERD}", f"folder:{CONTAINERD_PARTS}")
    if _docker_unseen(facts):
        yield f"folder:{DOCKER_FOLDER}"


def _names(facts: Facts) -> set[str]:
    return {package.name for package in facts.installed(PACKAGES)}


def _containerd_alone(facts: Facts) -> bool:
    return "containerd.io" in _names(facts) and not _names(facts) & set(DOCKER)


def _docker_unseen(facts: Facts) -> bool:
    return facts.texts[DAEMON] is None and bool(_names(facts) & set(DOCKER))


def evaluate(facts: Facts) -> Iterator[Finding]:
    if facts.system.container is not None:
        yield Subject(check=NAME).skips("software.engines-outside-container", container=facts.system.container)
        return
    if facts.packages is None:
        yield Subject(check=NAME).unknown("software.packages-unreadable")
        return
    engines = [package.name for package in facts.installed(PACKAGES) if package.name != TOOLKIT]
    toolkit, daemon = facts.packages[TOOLKIT], facts.texts[DAEMON]
    runtimes = _runtimes(daemon)
    # The file is there and cannot be read.
    unreadable = _docker_unseen(facts) and "daemon.json" in (facts.folders[DOCKER_FOLDER] or ())
    specifications = [f"{folder}/{name}" for folder in CDI_FOLDERS for name in facts.folders[folder] or ()]
    subject = Subject(check=NAME).with_evidence(
        f"engines: {', '.join(engines) or 'none'}; {TOOLKIT}: {toolkit.version if toolkit else 'not installed'}",
        f"{DAEMON}: {'not readable' if unreadable else _described(daemon, runtimes)}",
        f"CDI: {', '.join(specifications) or 'none'}",
    )
    cdi = any("nvidia" in name for name in specifications)
    # Nothing of containerd where Docker configures it.
    parts = (facts.texts[CONTAINERD], *(facts.folders[CONTAINERD_PARTS] or ())) if _containerd_alone(facts) else ()
    configured = cdi or "nvidia" in (runtimes or ()) or any("nvidia" in (part or "") for part in parts)
    if runtimes is None:
        yield subject.fails("software.docker-config-invalid", f"{DAEMON} is not JSON", path=DAEMON)
    elif not engines:
        yield subject.skips("software.no-container-engine")
    elif toolkit is None:
        yield subject.skips("software.no-container-toolkit")
    elif configured:
        yield subject.passes("CDI specification for NVIDIA GPUs" if cdi else "NVIDIA runtime configured")
    elif unreadable:
        yield subject.unknown("software.docker-config-unreadable", path=DAEMON)
    else:
        engine = "docker" if set(engines) & set(DOCKER) else "containerd" if "containerd.io" in engines else "podman"
        yield subject.warns(NOT_CONFIGURED[engine], "container engines not configured for NVIDIA GPUs", engine=engine)


def _described(daemon: str | None, runtimes: tuple[str, ...] | None) -> str:
    if runtimes is None:
        return "not JSON"
    return f"runtimes {', '.join(runtimes)}" if runtimes else "no runtimes" if daemon else "not there"


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


NEEDS = (
    "system",
    *(f"package:{name}" for name in PACKAGES),
    f"text:{DAEMON}",
    *(f"folder:{folder}" for folder in CDI_FOLDERS),
)
CHECK = quick_check(NAME, "software container", evaluate, NEEDS, more=more)
