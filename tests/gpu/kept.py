"""Numbers of a run on real GPUs, and the tolerances that earlier runs on the same GPU model give."""

import json
import warnings
from pathlib import Path

from gpucheck.host.simulated import machine_directory

RESULTS = Path(__file__).parents[2] / "bench/results"
MARGIN = 2.0  # times the largest deviation that was recorded
SIMULATED = 0.03  # the most between two measurements of a simulated machine


class Kept(dict[str, float]):
    """Numbers by name. stem: of the result files of this GPU model, earlier ones and the one to write.

    about: machine, versions and ``date``. On a simulated machine no file is written.
    """

    def __init__(self, stem: str, about: dict[str, str], folder: Path = RESULTS) -> None:
        super().__init__()
        self.about, self.file = about, folder / f"{stem}-{about['date'][:10]}.json"
        files = sorted(folder.glob(f"{stem}-[0-9]*.json"))
        self.earlier = [json.loads(file.read_text(encoding="utf-8"))["numbers"] for file in files]

    def __setitem__(self, name: str, value: float) -> None:
        """Keep it, in the file too: a run that is cut keeps what it had."""
        super().__setitem__(name, value)
        if machine_directory() is None:
            self.file.write_text(json.dumps(self.about | {"numbers": self}, indent=2) + "\n")

    def close(self, name: str, measured: float, reference: float, wanted: float) -> None:
        """Keep both numbers and how far they are apart, as a part of the reference. Raises AssertionError.

        The first run on a GPU model records: a deviation above ``wanted`` is a warning. A later run may be as far apart
        as that, or twice as far as the recorded ones were.
        """
        key, apart = f"{name}, deviation", abs(measured / reference - 1)
        self[name], self[f"{name}, reference"], self[key] = round(measured, 3), round(reference, 3), round(apart, 5)
        before = [numbers[key] for numbers in self.earlier if key in numbers]
        if machine_directory() is not None:
            assert apart <= SIMULATED, f"{name}: {measured:.3f}, reference {reference:.3f}"
        elif before:
            allowed = max(wanted, MARGIN * max(before))
            assert apart <= allowed, f"{name}: {measured:.3f}, reference {reference:.3f}, recorded before: {before}"
        elif apart > wanted:
            warnings.warn(f"{name}: {apart:.1%} from its reference, above {wanted:.1%}", stacklevel=2)
