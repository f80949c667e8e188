"""Where an image's bytes are: ten folders, none inside another."""

from hypothesis import given
from hypothesis import strategies as st

from gpucheck.images.size import largest

LISTING = """100\t/usr/bin
250\t/usr/lib
400\t/usr
4000\t/opt/venv/lib/python3.12/site-packages/torch/lib
4200\t/opt/venv/lib/python3.12/site-packages/torch
900\t/opt/venv/lib/python3.12/site-packages/nvidia/cudnn
300\t/opt/venv/lib/python3.12/site-packages/nvidia/nccl
1200\t/opt/venv/lib/python3.12/site-packages/nvidia
5500\t/opt/venv/lib/python3.12/site-packages
5500\t/opt/venv/lib/python3.12
5500\t/opt/venv/lib
5500\t/opt/venv
5500\t/opt
5900\t/
du: cannot read directory '/root': Permission denied
"""


def test_a_library_is_told_whole_and_what_only_holds_libraries_by_them():
    names = [path.rpartition("/")[2] for path, _ in largest(LISTING)]

    assert names == ["torch", "cudnn", "nccl", "lib", "bin"]
    assert largest(LISTING, 1) == [("/opt/venv/lib/python3.12/site-packages/torch", 4200)]


def test_nothing_listed_is_nothing_told():
    assert largest("") == []


@given(st.dictionaries(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), st.integers(1, 1000)))
def test_no_folder_is_told_inside_another(own):
    """Whatever the tree: at most ten, largest first, and no byte twice."""
    sizes: dict[tuple[str, ...], int] = {}
    for path, count in own.items():
        for depth in range(len(path) + 1):
            sizes[path[:depth]] = sizes.get(path[:depth], 0) + count
    found = largest("".join(f"{size}\t/{'/'.join(path)}\n" for path, size in sizes.items()))

    paths = [path for path, _ in found]
    assert len(found) <= 10
    assert [size for _, size in found] == sorted((size for _, size in found), reverse=True)
    assert not any(a != b and a.startswith(f"{b.rstrip('/')}/") for a in paths for b in paths)
