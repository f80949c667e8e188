"""How hot a cell of a matrix is: which matrices there are, and the five steps from far below to as expected."""

from collections.abc import Mapping, Sequence

from gpucheck.model.bandwidth import Matrix, MeasuredPair

# Name -> title, and whether less is better.
TITLES = {
    "p2p_uni_gb_s": ("unidirectional, GB/s (row to column)", False),
    "p2p_bidir_gb_s": ("bidirectional, sum, GB/s", False),
    "p2p_latency_us": ("latency of a small copy, us", True),
    "staged_uni_gb_s": ("through host memory, unidirectional, GB/s", False),
    "staged_latency_us": ("latency through host memory, us", True),
    "load_latency_us": ("latency of a load by a kernel of the column, us", True),
}
STEPS = 5
# The best step of a cell below its low end.
SLOW_STEP = 1
SLOW_MARK = "*"
SLOW_MEANING = "below the low end of what is expected"
Expected = Mapping[tuple[int, int], float | None]


def is_sparse(matrix: Matrix) -> bool:
    """Fewer numbers than rows: a reference that was taken on some pairs only."""
    return sum(cell is not None for row in matrix for cell in row) < len(matrix)


def expectations(name: str, pairs: Sequence[MeasuredPair]) -> Expected:
    """What the cells of a matrix should hold, as far as that is known."""
    if name == "p2p_uni_gb_s":
        return {(pair.src, pair.dst): pair.expected_gb_s for pair in pairs}
    if name == "p2p_bidir_gb_s":
        return {(pair.src, pair.dst): pair.both_ways_expected_gb_s for pair in pairs}
    return {}


def low_ends(name: str, pairs: Sequence[MeasuredPair]) -> Expected:
    """Below what a cell of the matrix is a finding, as far as that is known."""
    if name == "p2p_uni_gb_s":
        return {(pair.src, pair.dst): pair.low_gb_s for pair in pairs}
    if name == "p2p_bidir_gb_s":
        return {(pair.src, pair.dst): pair.both_ways_low_gb_s for pair in pairs}
    return {}


def below(matrix: Matrix, low: Expected) -> set[tuple[int, int]]:
    """The cells below their low end."""
    cells = (((i, j), cell) for i, row in enumerate(matrix) for j, cell in enumerate(row) if cell is not None)
    return {place for place, cell in cells if cell < (low.get(place) or 0.0)}


def steps(name: str, matrix: Matrix, pairs: Sequence[MeasuredPair]) -> list[list[int | None]]:
    """For each cell 0 (far below) to STEPS - 1 (as it should be), None where nothing was measured.

    By the part of what is expected where that is known, else by the part of the best in the matrix. Below half of what
    it should be everything is step 0; from 95 % on everything is the last. What is a finding is never green.
    """
    expected, slow = expectations(name, pairs), below(matrix, low_ends(name, pairs))
    less_is_better = TITLES[name][1]
    values = [cell for row in matrix for cell in row if cell is not None]
    best = (min(values) if less_is_better else max(values)) if values else 0.0

    def step(cell: float | None, place: tuple[int, int]) -> int | None:
        if cell is None:
            return None
        part = best / (cell or 1.0) if less_is_better else cell / (expected.get(place) or best or 1.0)
        most = SLOW_STEP if place in slow else STEPS - 1
        return max(0, min(most, int((part - 0.5) / 0.45 * (STEPS - 1))))

    return [[step(cell, (i, j)) for j, cell in enumerate(row)] for i, row in enumerate(matrix)]
