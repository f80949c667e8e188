"""A Docker engine of values: what it holds is handed in, what is asked of it is written down."""

from dataclasses import dataclass, field
from typing import Any

import docker.errors


@dataclass
class FakeImage:
    tags: list[str]


@dataclass
class FakeNetwork:
    name: str
    subnet: str
    labels: dict[str, str] = field(default_factory=dict)
    gateway: str = ""
    removed: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        return {"IPAM": {"Config": [{"Subnet": self.subnet, "Gateway": self.gateway}]}}

    def remove(self) -> None:
        self.removed = True


@dataclass
class FakeContainer:
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    status: str = "running"
    image: str = "busybox:1"
    removed: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        return {"Config": {"Image": self.image, "Hostname": self.name}, "NetworkSettings": {"Networks": {}}}

    def remove(self, **_options: Any) -> None:
        self.removed = True


def matches(labels: dict[str, str], filters: dict[str, Any] | None) -> bool:
    """The engine's own rule: ``label=key`` or ``label=key=value``."""
    wanted = (filters or {}).get("label")
    if wanted is None:
        return True
    key, equals, value = str(wanted).partition("=")
    return key in labels and (not equals or labels[key] == value)


def fake_docker(**holds: Any) -> Any:
    """An engine that holds these networks, containers and image tags. Any, so that it passes for a docker client."""
    return FakeEngine(**holds)


class FakeEngine:
    """The part of a docker client that the lab uses."""

    def __init__(
        self,
        networks: tuple[FakeNetwork, ...] = (),
        containers: tuple[FakeContainer, ...] = (),
        tags: tuple[str, ...] = (),
    ) -> None:
        self.network_list = list(networks)
        self.container_list = list(containers)
        self.tags = list(tags)
        self.asked: list[str] = []
        self.networks = Networks(self)
        self.containers = Containers(self)
        self.images = Images(self)


@dataclass
class Networks:
    engine: FakeEngine

    def list(self, names: Any = None, filters: dict[str, Any] | None = None) -> Any:
        found = [n for n in self.engine.network_list if matches(n.labels, filters)]
        return [n for n in found if names is None or f"^{n.name}$" in names]

    def get(self, name: str) -> FakeNetwork:
        return next(network for network in self.engine.network_list if network.name == name)

    def create(self, name: str, **options: Any) -> FakeNetwork:
        pool = options["ipam"]["Config"][0]
        made = FakeNetwork(name, pool["Subnet"], options["labels"])
        self.engine.network_list.append(made)
        return made


@dataclass
class Containers:
    engine: FakeEngine

    def list(self, filters: dict[str, Any] | None = None, **_options: Any) -> Any:
        return [c for c in self.engine.container_list if matches(c.labels, filters) and not c.removed]

    def get(self, name: str) -> FakeContainer:
        for container in self.engine.container_list:
            if container.name == name:
                return container
        raise docker.errors.NotFound(f"No such container: {name}")


@dataclass
class Images:
    engine: FakeEngine

    def list(self, name: str = "") -> Any:
        self.engine.asked.append(f"images {name}")
        return [FakeImage([tag]) for tag in self.engine.tags]

    def remove(self, tag: str) -> None:
        self.engine.tags.remove(tag)

    def build(self, **options: Any) -> Any:
        self.engine.asked.append(f"build {options['tag']}")
        self.engine.tags.append(options["tag"])

    def pull(self, repository: str, tag: str) -> Any:
        raise docker.errors.NotFound(f"{repository}:{tag}: not here")
