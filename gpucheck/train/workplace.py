"""The private folder of one run: which file says what. Both the ranks and their supervisor know only these names."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

import gpucheck
from gpucheck.train.outcome import RankReport

PACKAGE = Path(gpucheck.__file__).parent


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank raised. missing: the module that was not found. raised: time.monotonic(). frames: innermost first."""

    type: str
    message: str
    missing: str | None
    frames: tuple[str, ...]
    raised: float


class Workplace(NamedTuple):
    """Files of one run. The folder is private (0700), and goes with everything in it when the run ends."""

    folder: Path

    @property
    def store(self) -> Path:
        """The rendezvous: a file needs no port, so no port can be taken or left open."""
        return self.folder / "store"

    def spec(self, rank: int) -> Path:
        """RankSpec, written by the supervisor."""
        return self.folder / f"spec-{rank}.json"

    def progress(self, rank: int) -> Path:
        """Position, overwritten by the rank."""
        return self.folder / f"progress-{rank}.json"

    def stack(self, rank: int) -> Path:
        """Where faulthandler writes the rank's stacks, on a signal from outside or on a crash."""
        return self.folder / f"stack-{rank}.txt"

    def error(self, rank: int) -> Path:
        """RankError of a rank that raised."""
        return self.folder / f"error-{rank}.json"

    def report(self, rank: int) -> Path:
        """RankReport of a rank that finished; appears complete or not at all."""
        return self.folder / f"report-{rank}.json"

    def shared_report(self, rank: int) -> Path:
        """RankReport of a rank on another host."""
        return self.folder / f"shared-report-{rank}.json"

    def shared_reports(self) -> Iterator[RankReport]:
        """The reports of the ranks on other hosts, as the first rank of this host has fetched them."""
        for file in sorted(self.folder.glob("shared-report-*.json")):
            yield msgspec.json.decode(file.read_bytes(), type=RankReport)

    def link_package(self) -> None:
        """Make this package, and nothing else, importable from the folder, which is the ranks' working folder."""
        (self.folder / PACKAGE.name).symlink_to(PACKAGE)

    def real(self, text: str) -> str:
        """A text with the package's own path in place of the link's, which is gone when the text is read."""
        return text.replace(str(self.folder / PACKAGE.name), str(PACKAGE))
