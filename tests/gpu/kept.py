"""Numbers of a run on real GPUs, and the tolerances that earlier runs on the same GPU model give."""

import json
import warnings
from pathlib import Path

from gpucheck.host.simulated import machine_directory

RESULTS = Path(__file__).parents[2] / "bench/results"
MARGIN = 2.0  # times the largest deviation that was recorded
LEAST = 0.002  # differences below it are those of the clock


class Kept(dict[str, float]):
    """Numbers by name. stem: of the result files of this GPU model, earlier ones and the one to write."""

    def __init__(self, stem: str, folder: Path = RESULTS) -> None:
        super().__init__()
        self.stem, self.folder = stem, folder
        files = sorted(folder.glob(f"{stem}-[0-9]*.json"))
        self.earlier = [json.loads(file.read_text(encoding="utf-8"))["numbers"] for file in files]

    def close(self, name: str, measured: float, reference: float, wanted: float) -> None:
        """Keep both numbers and how far they are apart, as a part of the reference. Raises AssertionError.

        The first run on a GPU model records: a deviation above ``wanted`` is a warning. Later runs compare with the
        deviations that were recorded. On a simulated machine ``wanted`` holds from the start.
        """
        key, apart = f"{name}, deviation", abs(measured / reference - 1)
        self[name], self[f"{name}, reference"], self[key] = round(measured, 3), round(reference, 3), round(apart, 5)
        before = [numbers[key] for numbers in self.earlier if key in numbers]
        if machine_directory() is not None:
            assert apart <= wanted, f"{name}: {measured:.3f}, reference {reference:.3f}"
        elif before:
            allowed = max(LEAST, MARGIN * max(before))
            assert apart <= allowed, f"{name}: {measured:.3f}, reference {reference:.3f}, recorded before: {before}"
        elif apart > wanted:
            warnings.warn(f"{name}: {apart:.1%} from its reference, above {wanted:.1%}", stacklevel=2)
