"""Find the largest directories of an image, none inside another."""

from pathlib import PurePosixPath

# A directory is replaced by its subdirectories if they have nearly all of its bytes; ``/opt`` is not specific.
PARTS = 0.5


def largest(listing: str, count: int = 10) -> list[tuple[str, int]]:
    """Return the largest directories of a `du --block-size=1` listing with their bytes, largest first."""
    sizes = dict(_rows(listing))
    children: dict[str, list[str]] = {}
    for path in sizes:
        if path != "/":
            children.setdefault(str(PurePosixPath(path).parent), []).append(path)
    found = ["/"] if "/" in sizes else []
    while True:
        split = next(
            (path for path in sorted(found, key=lambda p: -sizes[p])[:count] if _splits(path, sizes, children)), None
        )
        if split is None:
            break
        found.remove(split)
        found += children[split]
    return sorted(((path, sizes[path]) for path in found), key=lambda row: -row[1])[:count]


def _splits(path: str, sizes: dict[str, int], children: dict[str, list[str]]) -> bool:
    """Return whether to list the subdirectories instead; the directory of a library is not split."""
    parts = [sizes[child] for child in children.get(path, ())]
    if not parts or sum(parts) < PARTS * sizes[path]:
        return False
    inside = PurePosixPath(path).parts
    return "site-packages" not in inside or inside[-1] in ("site-packages", "nvidia", "cu13")


def _rows(listing: str) -> list[tuple[str, int]]:
    rows = (line.split("\t", 1) for line in listing.splitlines() if "\t" in line)
    return [(path, int(size)) for size, path in rows if size.isdigit()]
