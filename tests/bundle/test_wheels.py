"""The wheels are those for the host's Python and C library, not for the controller's."""

import hashlib
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpucheck.bundle import wheels
from gpucheck.bundle.contents import BundleError
from gpucheck.bundle.wheels import Interpreter, compile_words, download_words

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


def python(glibc="2.36", version="3.10", machine="x86_64"):
    return Interpreter(version=version, glibc=glibc, machine=machine)


@pytest.mark.parametrize(
    ("glibc", "platform"), [("2.36", "2_36"), ("2.30", "2_28"), ("2.17", "2_17"), ("2.52", "2_40"), ("2.12", "2_17")]
)
def test_the_newest_c_library_that_uv_knows_and_the_host_has_is_chosen(glibc, platform):
    words = compile_words(python(glibc), ["--no-index", "--trusted-host", "10.0.0.1"])

    assert words[-3:] == ["--no-index", "--allow-insecure-host", "10.0.0.1"]
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
def test_uv_uses_the_index_of_the_pip_configuration(monkeypatch, told, environment):
    """uv reads no pip.conf, and a site names its mirror there."""
    monkeypatch.setattr(wheels, "run", lambda words, **_: told.encode())
    for name in ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)

    assert {name: value.strip() for name, value in wheels._index().items()} == environment


LOCK = Path(__file__).parents[2] / "requirements.lock"


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_lock_has_one_version_with_hashes_of_everything_that_gpucheck_needs(version, machine):
    found = wheels.fitting(LOCK.read_text(), python(version=version, machine=machine))
    project = tomllib.loads((LOCK.parent / "pyproject.toml").read_text())["project"]

    needed = [*project["dependencies"], "numpy", "filelock", "fsspec", "sympy", "networkx", "setuptools"]
    assert {canonicalize_name(Requirement(one).name) for one in needed} <= set(found)
    tested = {}
    for row in (LOCK.parent / "constraints.txt").read_text().splitlines():
        if row and not row.startswith("#"):
            one = Requirement(row)
            if one.marker is None or one.marker.evaluate({"python_version": version}):
                tested[canonicalize_name(one.name)] = str(one.specifier)
    for name, row in found.items():
        assert row.count("--hash=sha256:") >= 1
        assert row.partition(" ")[0].endswith(tested[name])


def test_a_marker_counts_for_the_hosts_python_and_not_for_this_one():
    hashes = [f" \\\n    --hash=sha256:{digest}" for digest in ("aa", "bb")]
    lock = "numpy==2.2.6 ; python_full_version < '3.11'" + "".join(hashes) + "\nclick==8.1" + hashes[0] + "\n"

    assert wheels.fitting(lock, python(version="3.10")) == {
        "numpy": "numpy==2.2.6 --hash=sha256:aa --hash=sha256:bb",
        "click": "click==8.1 --hash=sha256:aa",
    }
    assert list(wheels.fitting(lock, python(version="3.12"))) == ["click"]


def test_locked_wheels_are_downloaded_with_their_hashes_and_torch_without(tmp_path, monkeypatch):
    wheel = tmp_path / "gpucheck_cluster-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    (tmp_path / "requirements.lock").write_text("click==8.1 --hash=sha256:cc\n")
    calls = []

    def run(words, **_):
        given = {
            Path(word).name: Path(word).read_text()
            for word in words
            if str(word).endswith(".txt") and Path(word).exists()
        }
        if "--output-file" in words:
            Path(words[words.index("--output-file") + 1]).write_text("click==8.1\ntorch==2.8\nnvidia-nccl-cu12==2.27\n")
        calls.append((words, given))
        return b""

    monkeypatch.setattr(wheels, "run", run)
    digest = hashlib.sha256(b"wheel").hexdigest()
    text = f"--requirement requirements.lock\ngpucheck-cluster @ file://{wheel} --hash=sha256:{digest}\n"
    lock = wheels.download(text, "torch==2.8", python(), [], tmp_path / "out")

    assert lock.read_text().startswith("click")
    assert (tmp_path / "out" / wheel.name).read_bytes() == b"wheel"
    locked, *_, torch = calls
    assert "--require-hashes" in locked[0]
    assert locked[1]["locked.txt"] == "click==8.1 --hash=sha256:cc\n"
    assert torch[1]["chosen.txt"] == "torch==2.8\nnvidia-nccl-cu12==2.27\n"

    wheel.write_bytes(b"another")
    with pytest.raises(BundleError, match="differs from the wheel that was built"):
        wheels.download(text, "", python(), [], tmp_path / "out")
