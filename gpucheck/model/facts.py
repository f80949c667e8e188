"""The facts of one host: one frozen document that readers fill and rules evaluate; its JSON is a recording.

A need names one of its parts, or an entry of one: ``nvml``, ``package:nvidia-imex-580``, ``text:/proc/cmdline``.
What was not asked is not there; what was asked and is not on the host is None or empty.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec

from gpucheck.model.collectives import Collected
from gpucheck.model.compute import Computed
from gpucheck.model.copies import Copied
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.finding import Finding
from gpucheck.model.host import NotRecorded
from gpucheck.model.host.hardware import Gpu, PciDevice
from gpucheck.model.host.network import PortCounters, RdmaDevice
from gpucheck.model.host.readings import (
    DeviceFile,
    DkmsModule,
    DriverState,
    InstalledKernel,
    KernelLog,
    Limits,
    LoaderLibrary,
    NvmlFailure,
    NvmlReading,
    PackageVersion,
    Simulation,
    System,
)
from gpucheck.model.network import Transferred
from gpucheck.model.smoke import Trained

T = TypeVar("T")

if TYPE_CHECKING:
    Asked = Annotated[T, "asked"]
else:

    class Asked:
        """A field that is UNSET until it is asked for. A rule only runs if all that it needs was asked."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return kind | msgspec.UnsetType


NOT_ASKED: Any = msgspec.UNSET
# Kinds of needs with a name, and the part that holds their answers by name.
BY_NAME = {
    "package": "packages",
    "python": "python_packages",
    "service": "services",
    "text": "texts",
    "folder": "folders",
    "library": "library_names",
}
# What a run measures and no reader reads.
MEASURED = ("copied", "computed", "trained", "collected", "transferred")
KINDS = {
    "package": "package",
    "python": "Python package",
    "service": "service",
    "text": "file",
    "folder": "directory",
    "library": "library",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one host answered, by question; None or an empty value is an answer.

    packages, libraries: None where the host could not read its package database or the loader's cache.
    texts, folders: by absolute path; a path below the interpreter's packages or the user's home starts with
    ``{purelib}`` or ``{home}``, because these lie elsewhere where a recording is evaluated.
    observed: GPU links as they were measured or as other tools report them. counters: of network ports, now, or in the
    order in which tools printed them; counters_at_start: when the run began. copied to transferred: by a run.
    """

    system: Asked[System] = NOT_ASKED
    simulation: Asked[Simulation | None] = NOT_ASKED
    driver: Asked[DriverState] = NOT_ASKED
    pci: Asked[tuple[PciDevice, ...]] = NOT_ASKED
    rdma: Asked[tuple[RdmaDevice, ...]] = NOT_ASKED
    counters_at_start: Asked[tuple[PortCounters, ...]] = NOT_ASKED
    counters: Asked[tuple[PortCounters, ...]] = NOT_ASKED
    nvml: Asked[NvmlReading | NvmlFailure] = NOT_ASKED
    kernel_log: Asked[KernelLog] = NOT_ASKED
    limits: Asked[Limits] = NOT_ASKED
    environment: Asked[dict[str, str]] = NOT_ASKED
    kernels: Asked[tuple[InstalledKernel, ...]] = NOT_ASKED
    dkms: Asked[tuple[DkmsModule, ...]] = NOT_ASKED
    secure_boot: Asked[bool | None] = NOT_ASKED
    packages: dict[str, PackageVersion | None] | None = {}
    python_packages: dict[str, str | None] = {}
    services: dict[str, str | None] = {}
    texts: dict[str, str | None] = {}
    folders: dict[str, tuple[str, ...] | None] = {}
    library_names: tuple[str, ...] = ()
    libraries: tuple[LoaderLibrary, ...] | None = ()
    device_files: Asked[tuple[DeviceFile, ...]] = NOT_ASKED
    observed: Observations = Observations()
    copied: Asked[Copied] = NOT_ASKED
    computed: Asked[Computed] = NOT_ASKED
    trained: Asked[tuple[Trained, ...]] = NOT_ASKED
    collected: Asked[Collected] = NOT_ASKED
    transferred: Asked[Transferred] = NOT_ASKED

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.nvml.gpus if isinstance(self.nvml, NvmlReading) else ()

    def missing(self, needs: Iterable[str]) -> list[str]:
        return [need for need in needs if not self._answered(need)]

    def _answered(self, need: str) -> bool:
        kind, colon, name = need.partition(":")
        answers = getattr(self, BY_NAME[kind] if colon else kind)
        return answers is None or name in answers if colon else answers is not msgspec.UNSET

    def installed(self, names: Iterable[str]) -> tuple[PackageVersion, ...]:
        """Return the installed ones of these packages; none where the package database could not be read.

        Raises KeyError for a package that was not asked for.
        """
        found = self.packages
        return () if found is None else tuple(one for name in names if (one := found[name]) is not None)

    def read(self, *needs: str) -> "Facts":
        """Return these facts: what a recording or a text contains is all that there is. Raises NotRecorded."""
        for need in self.missing(needs):
            kind, _, name = need.rpartition(":")
            raise NotRecorded(f"the recording does not contain {KINDS.get(kind, kind)} {name}".replace("  ", " "))
        return self


class Source(Protocol):
    """Where facts come from: the live host reads them when they are needed."""

    def read(self, *needs: str) -> Facts:
        """Return the facts so far, with at least these needs; without needs nothing is read.

        Raises NotRecorded for what a recording lacks; StuckError and others as the read of a live host ended.
        """


# What it can report is in gpucheck/knowledge/codes/*.yml, under its name.
@dataclass(frozen=True)
class Check:
    """needs: as in gpucheck.model.facts; if one has no answer, that alone decides, and evaluate is not called.

    more: further needs that depend on the first answers, such as the packages that a file names.
    thresholds: what its verdicts depend on, as text with the values.
    """

    name: str
    tags: frozenset[str]
    evaluate: Callable[[Facts], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    more: Callable[[Facts], Iterable[str]] = lambda _: ()
    thresholds: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What it asks and how it decides: the docstring of its function, of its module where that is `evaluate`."""
        module = sys.modules[self.evaluate.__module__]
        own = self.evaluate.__doc__ if getattr(self.evaluate, "__name__", "evaluate") != "evaluate" else None
        return cleandoc(own or module.__doc__ or "")
