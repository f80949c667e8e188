"""The wheels are those for the host's Python and C library, not for the controller's."""

import pytest

from gpucheck.bundle import wheels
from gpucheck.bundle.errors import BundleError
from gpucheck.bundle.wheels import Interpreter, compile_words, download_words


def python(glibc="2.36", version="3.10", machine="x86_64"):
    return Interpreter(version=version, glibc=glibc, machine=machine)


@pytest.mark.parametrize(
    ("glibc", "platform"), [("2.36", "2_36"), ("2.30", "2_28"), ("2.17", "2_17"), ("2.52", "2_40"), ("2.12", "2_17")]
)
def test_the_newest_c_library_that_uv_knows_and_the_host_has_is_chosen(glibc, platform):
    words = compile_words(python(glibc), [])

    assert words[words.index("--python-platform") + 1] == f"x86_64-manylinux_{platform}"
    assert words[words.index("--python-version") + 1] == "3.10"


def test_pip_takes_every_platform_up_to_the_hosts_c_library_and_none_above():
    words = download_words(python("2.28", "3.12", "aarch64"), ["--no-index"])
    platforms = [words[i + 1] for i, word in enumerate(words) if word == "--platform"]

    assert platforms[0] == "manylinux_2_28_aarch64"
    assert "manylinux_2_17_aarch64" in platforms
    assert "manylinux2014_aarch64" in platforms
    assert not any("2_29" in platform for platform in platforms)
    assert [words[i + 1] for i, word in enumerate(words) if word == "--abi"] == ["cp312", "abi3", "none"]
    assert words[-1] == "--no-index"


def test_the_hosts_own_pip_arguments_count_in_each_programs_words():
    pip_args = ["--no-index", "--find-links", "http://10.0.0.1/wheels/", "--trusted-host", "10.0.0.1"]

    assert compile_words(python(), pip_args)[-5:] == [*pip_args[:3], "--allow-insecure-host", "10.0.0.1"]
    assert download_words(python(), pip_args)[-5:] == pip_args


@pytest.mark.parametrize("glibc", ["1.2", "musl", "2.x"])
def test_a_c_library_without_wheels_is_refused(glibc):
    with pytest.raises(BundleError, match="not a glibc that wheels are published for"):
        compile_words(python(glibc), [])


@pytest.mark.parametrize(
    ("told", "environment"),
    [
        ("", {}),
        ("global.index-url='https://a/simple'\n", {"UV_INDEX_URL": "https://a/simple"}),
        ("global.index-url='https://a'\n:env:.index-url='https://b'\n", {"UV_INDEX_URL": "https://b"}),
        ("global.extra-index-url='\\nhttps://a\\nhttps://b'\n", {"UV_EXTRA_INDEX_URL": "https://a https://b"}),
        ("global.timeout='60'\n", {}),
    ],
)
def test_uv_asks_the_index_that_pip_is_configured_for(monkeypatch, told, environment):
    """uv reads no pip.conf, and a site names its mirror there."""
    monkeypatch.setattr(wheels, "run", lambda words, **_: told.encode())
    for name in ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)

    assert {name: value.strip() for name, value in wheels._index().items()} == environment
