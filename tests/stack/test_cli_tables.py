"""gpucheck stack tables --update: rows from NVIDIA's lists, kept in a directory that later commands read."""

import json
from pathlib import Path

import pytest
import yaml

from gpucheck.knowledge import _load, tables
from gpucheck.knowledge.releases import MADE, MOST_BYTES
from tests.stack.cli_words import run

RECORDED = Path(__file__).parents[1] / "data" / "releases"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The user's directory of tables, which does not exist yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path / "gpucheck" / "knowledge"
    _load.use(tmp_path, {})


def a_list(**branches):
    """A releases.json: keyword b625="nfb 2027-01-20 625.12.01" makes a branch of one release."""
    names = {"nfb": "new feature branch", "pb": "production branch", "lts": "lts branch"}
    found = {}
    for key, words in branches.items():
        kind, date, *versions = words.split()
        rows = [{"release_version": version, "release_date": date} for version in versions]
        found[key[1:]] = {"type": names.get(kind, kind), "driver_info": rows}
    return json.dumps(found).encode()


def redistrib(label, product, **parts):
    """A redistrib file with these components."""
    return json.dumps(
        {"release_date": "2027-01-20", "release_label": label, "release_product": product, **parts}
    ).encode()


def update(tmp_path, *contents):
    """The command with each content in a file."""
    files = []
    for number, content in enumerate(contents):
        (tmp_path / f"list{number}.json").write_bytes(content)
        files += ["--update", tmp_path / f"list{number}.json"]
    return run("tables", *files)


NEW = (
    a_list(b625="nfb 2027-01-20 625.12.01"),
    redistrib("625.12.01", "nvidia-driver", cuda_compat={"version": "625.12.01", "cuda_variant": ["13.6"]}),
    redistrib("13.6.0", "cuda", cuda_cudart={"version": "13.6.10"}),
)


def chosen(*words):
    """Driver and CUDA of the newest set."""
    done = run(*words, "resolve", "--gpu", "H100", "--os", "rocky-9", "--prefer", "newest", "--format", "json")
    found = json.loads(done.stdout)
    return found["driver"]["version"], found["cuda"]


def test_recorded_lists_hold_what_the_tables_have_and_two_newer_releases(folder):
    done = run("tables", *(word for path in sorted(RECORDED.glob("*.json")) for word in ("--update", path)))

    assert done.exit_code == 0, done.output
    # The record of 595.112.07 lacks its packages, so the shipped tables stay at 595.91.07; auto skips patch releases.
    assert done.stdout.splitlines() == ["cuDNN 9.24.1.1", "driver branch 595: 595.112.07"]


def test_new_branch_with_its_cuda_is_used_by_later_commands(folder, tmp_path):
    assert chosen() == ("620.70.06", "13.5.0")
    done = update(tmp_path, *NEW)

    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        ["driver branch 625: 625.12.01, NFB", "driver branch 625: CUDA 13.6", "CUDA 13.6.0, driver 625.12.01"],
    )
    assert chosen() == ("625.12.01", "13.6.0")
    assert update(tmp_path, *NEW).stdout == ""
    shown = run("tables")
    assert shown.stdout.splitlines()[1:] == [f"with rows of {folder / name}" for name in ("cuda.yml", "drivers.yml")]


def test_your_own_file_is_not_replaced(folder, tmp_path):
    folder.mkdir(parents=True)
    own = folder / "drivers.yml"
    own.write_text('branches:\n- {branch: "580", last: "580.1.1"}\n')
    before = own.read_text()
    done = update(tmp_path, NEW[0])

    assert done.exit_code == 64
    assert f"{own}: your own file, which is not replaced" in done.stderr
    assert own.read_text() == before


def test_older_lists_and_windows_releases_add_nothing(folder, tmp_path):
    done = update(
        tmp_path,
        a_list(
            b580="lts 2025-01-01 580.65.06 582.41", b999="lts 2025-01-01 1000.1.1", b340="legacy 2014-01-01 340.108"
        ),
        redistrib("13.0.2", "cuda"),
        redistrib("9.1.0", "cudnn", cudnn={"version": "9.26.0.51", "cuda_variant": ["13"]}),
    )

    assert (done.exit_code, done.stdout) == (0, "")
    assert not folder.exists()


def test_rows_that_an_update_of_gpucheck_has_overtaken_do_not_count(folder):
    folder.mkdir(parents=True)
    rows = [{"branch": "580", "last": "580.95.05", "type": "NFB"}, {"branch": "620", "last": "620.99.01"}]
    (folder / "drivers.yml").write_text(MADE + yaml.safe_dump({"branches": rows}))
    run("resolve", "--gpu", "H100", "--os", "rocky-9")
    found = {row.branch: row for row in tables.drivers().branches}

    assert (found["580"].last, found["580"].type) == ("580.178.04", "LTS")
    assert found["620"].last == "620.99.01"


MALFORMED = {
    "too large": (b" " * (MOST_BYTES + 1), "larger than 4 MiB"),
    "not JSON": (b"<html>", "neither NVIDIA's releases.json nor a redistrib_*.json: JSON is malformed"),
    "nothing": (b"{}", "it holds 'nothing' in place of branches"),
    "another object": (b'{"news": {"type": "x", "driver_info": []}}', "it holds 'news' in place of branches"),
    "a shell's word": (a_list(b620="lts 2026-11-04 620.1$(id)"), "matching regex"),
    "too many": (a_list(b620="lts 2026-11-04 " + "620.1.1 " * 2001), "length <= 2000"),
    "a new major": (redistrib("14.0.0", "cuda"), "CUDA 14.0.0: a new major, whose GPUs and drivers are in no list"),
    "no cuDNN": (redistrib("9.30.0", "cudnn"), "its list states no version or no CUDA of cudnn"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_list_is_refused_in_one_line(folder, tmp_path, name):
    content, words = MALFORMED[name]
    done = update(tmp_path, content)

    assert done.exit_code == 64, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {tmp_path / 'list0.json'}: ") or name in ("a new major", "no cuDNN")
    assert words in line
    assert not folder.exists()


def test_default_address_leads_to_the_cuda_of_new_branches(folder, tmp_path):
    address, site = tmp_path.as_uri(), tmp_path / "site"
    for name, content in {"releases.json": NEW[0], "redistrib_625.12.01.json": NEW[1]}.items():
        (tmp_path / name).write_bytes(content)
    site.mkdir()
    lists = {"releases": f"{address}/releases.json", "redistrib": f"{address}/redistrib_{{version}}.json"}
    (site / "drivers.yml").write_text(MADE + yaml.safe_dump({"lists": lists}))
    done = run("--knowledge-dir", site, "tables", "--update")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["driver branch 625: 625.12.01, NFB", "driver branch 625: CUDA 13.6"]
    assert not folder.exists()


def test_address_that_cannot_be_read_is_one_line(folder, tmp_path):
    (tmp_path / "large.json").write_bytes(b" " * (MOST_BYTES + 1))

    for place, status, words in (
        (f"{tmp_path.as_uri()}/none.json", 3, "No such file"),
        (f"{tmp_path.as_uri()}/large.json", 3, "4 MiB"),
        ("http://127.0.0.1:9/releases.json", 3, "Connection refused"),
        ("ftp://127.0.0.1/releases.json", 64, "neither a file nor an https, http or file address"),
    ):
        done = run("tables", "--update", place)
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, words in line) == (status, True), line
    assert not folder.exists()


def test_tables_that_other_users_may_write_are_not_used(monkeypatch, tmp_path):
    """They hold versions and keys of packages."""
    folder = tmp_path / "gpucheck" / "knowledge"
    folder.mkdir(parents=True)
    (folder / "drivers.yml").write_text("nonsense: [", encoding="utf-8")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run("tables").exit_code != 0
    folder.chmod(0o777)

    done = run("tables")

    assert done.exit_code == 0
    assert (
        f"tables with rows from {folder} are not used: {folder} can be written by other users (mode 777)" in done.stderr
    )
