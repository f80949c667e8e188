"""Container engines on the lab's hosts that only keep book of what is asked of them, configured by the site."""

import json

from tests.lab.e2e import on_host

# Not in /run: it outlives a boot.
BOOK = "/var/tmp/engine"
PROGRAMS = {"lab-apt": ("dockerd",), "lab-dnf": ("containerd", "kubelet")}
SERVICES = {"lab-apt": "docker", "lab-dnf": "containerd"}
SITES_OWN = {
    "lab-apt": ("/etc/docker/daemon.json", '{"log-driver": "journald"}'),
    "lab-dnf": ("/etc/containerd/config.toml", "version = 2"),
}
UNIT = f"""[Unit]
After=gpucheck-lab-boot.service
[Service]
ExecStart=/bin/sh -c 'echo start in boot $(cat /var/lib/gpucheck-lab/boots) >>{BOOK}; exec sleep infinity'
ExecReload=/bin/sh -c 'echo reload >>{BOOK}'
[Install]
WantedBy=multi-user.target
"""


def put(host: str, path: str, content: str, mode: str = "644") -> None:
    """A file on a host."""
    script = 'mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1" && chmod "$3" "$1"'
    on_host(host, "sh", "-c", script, "sh", path, content, mode)


def install() -> None:
    """A running engine on each host: Docker on the one, a containerd that serves kubelet on the other."""
    for host, service in SERVICES.items():
        for program in PROGRAMS[host]:
            put(host, f"/usr/local/bin/{program}", "#!/bin/sh\n", "755")
        put(host, f"/etc/systemd/system/{service}.service", UNIT)
        put(host, *SITES_OWN[host])
        on_host(host, "systemctl", "enable", "--now", service)


def book(host: str) -> list[str]:
    """What the engine was asked, line by line."""
    return on_host(host, "cat", BOOK).splitlines()


def docker_settings() -> dict[str, object]:
    """daemon.json of the host with Docker."""
    found: dict[str, object] = json.loads(on_host("lab-apt", "cat", SITES_OWN["lab-apt"][0]))
    return found
