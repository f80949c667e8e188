"""Libraries that the loader finds more than once."""

import pytest

from gpucheck.checks.software import loader
from gpucheck.model import LoaderLibrary
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN
from tests.fakes import facts


def lib(soname, folder, source="ld.so.cache"):
    return LoaderLibrary(soname=soname, path=f"{folder}/{soname}", source=source)


@pytest.mark.parametrize(
    ("libraries", "python", "verdicts"),
    [
        ((), {}, [SKIP]),
        ((lib("libcudart.so.12", "/usr/local/cuda/lib64"),), {"torch": "2.13.0"}, [PASS]),
        ((lib("libcudart.so.12", "/usr/local/cuda-12.8/lib64"), lib("libcudart.so.12", "/opt/cuda/lib64")), {}, [WARN]),
        ((lib("libcudart.so.12", "/a"), lib("libcudart.so.13", "/b")), {}, [PASS]),
        ((lib("libnccl.so.2", "/opt/nccl", "LD_LIBRARY_PATH"),), {"torch": "2.13.0"}, [WARN]),
        ((lib("libnccl.so.2", "/opt/nccl", "LD_LIBRARY_PATH"),), {}, [PASS]),
        ((lib("libother.so.2", "/a"), lib("libother.so.2", "/b")), {}, [SKIP]),  # asked for by another check
    ],
)
def test_two_copies_of_a_library_are_named_and_so_is_one_that_overrules_a_wheel(libraries, python, verdicts):
    """Two majors are two libraries."""
    found = list(loader.evaluate(facts(libraries=libraries, python=python)))

    assert [finding.verdict for finding in found] == verdicts
    assert all(finding.cause == "library-mismatch" for finding in found if finding.verdict is WARN)


def test_loader_cache_that_cannot_be_listed_is_unknown():
    (finding,) = loader.evaluate(facts(libraries=None))

    assert finding.verdict is UNKNOWN
