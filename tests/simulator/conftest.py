import pytest

from gpucheck import simulator


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def activate(monkeypatch, cache):
    """simulator.activate with a cache of the test run's own; the environment is put back afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    return simulator.activate
