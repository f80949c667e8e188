"""verify --expect and --baseline on the command line: both files are refused before anything is measured."""

import json
import os

import pytest

QUICK = ("verify", "--simulate", "hgx-h100-x8", "--level", "quick")
# Owner, mode, the user who called sudo, why root does not believe it.
BASELINES = [
    (0, 0o640, "", None),
    (1000, 0o640, "1000", None),
    (1000, 0o640, "", "belongs to user 1000"),
    (1000, 0o640, "1001", "belongs to user 1000"),
    (0, 0o666, "", "can be written by other users (mode 666)"),
]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A report of the simulated host, as verify wrote it."""
    path = tmp_path_factory.mktemp("baseline") / "report.json"
    from gpucheck.cli import main

    with pytest.raises(SystemExit):
        main([*QUICK, "--format", "json", "-o", str(path)])
    return path


def test_a_host_is_held_against_its_earlier_report(run, earlier):
    # Whatever is left out, the step that records what is compared is not.
    status, out, _ = run(*QUICK, "--only", "driver", "--baseline", str(earlier), "--format", "json")
    assert (status, {f["check"] for f in json.loads(out)["findings"]}) == (0, {"driver", "gpu-health", "baseline"})

    status, out, _ = run(*QUICK, "--baseline", str(earlier), "--fault", "replay-rising:gpu=0", "--format", "json")
    worse = [f for f in json.loads(out)["findings"] if f["check"] == "baseline"]
    assert (status, {f["verdict"] for f in worse}) == (1, {"warn"})
    assert all("an hour" in f["seen"] and f["subject"] == "gpu:0000:19:00.0" for f in worse)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"host": "', '"host": "other-', 1), "is a report of other-"),
        (lambda text: text.replace('"simulated": true', '"simulated": false', 1), "is a report of real hardware"),
        (lambda text: text[: len(text) // 2], "it is cut off"),
        (lambda text: text + text, "more than one document"),
        (lambda text: text.replace("gpucheck.report/1", "gpucheck.fleet/1", 1), "not a report"),
        (lambda text: text.replace('"evidence":["', '"evidence":[1,"', 1), "not a report of gpucheck verify"),
    ],
)
def test_a_baseline_of_another_host_or_a_damaged_one_is_refused(run, earlier, tmp_path, change, words):
    other = tmp_path / "other.json"
    other.write_text(change(earlier.read_text()))
    status, out, err = run(*QUICK, "--baseline", str(other), "-o", str(tmp_path / "never"))

    assert (status, out) == (64, "")
    assert err.startswith(f"Error: {other}: ")
    assert words in err
    assert "--baseline" in err
    assert not (tmp_path / "never").exists()


def test_both_kinds_of_files_are_compared_in_one_run(run, earlier, tmp_path):
    site = tmp_path / "site.yml"
    site.write_text("gpus: {count: 9}\n")
    words = ("--only", "driver", "--expect", str(site), "--expect", str(earlier))
    status, out, _ = run(*QUICK, *words, "--format", "json")
    found = {(f["check"], f["verdict"]) for f in json.loads(out)["findings"]}
    assert (status, {("expectations", "fail"), ("baseline", "pass")} - found) == (2, set())


def test_expectations_are_read_before_the_run_and_judged_after_it(run, tmp_path):
    site = tmp_path / "site.yml"
    site.write_text("gpus: {count: 8}\nfloors: {p2p_uni_gb_s: 300}\n")
    status, out, _ = run(*QUICK, "--expect", str(site))
    assert (status, "expectations" in out, "no copies were measured in this run" in out) == (0, True, True)

    status, out, _ = run(*QUICK, "--expect", str(site), "--fault", "gpu-missing:gpu=3")
    assert status == 2
    assert f"{site}:1: gpus.count" in out


@pytest.mark.parametrize("option", ["--expect", "--baseline"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "{}: there is nothing in it"),
        ("#" * (1 << 20) + "\n", "{}: larger than 1 MiB"),
        ("gpus:\n  cuont: 8\n", "{}:2: gpus.cuont: no such key. Did you mean count? Known here: count, "),
        (None, "{}: cannot be read: No such"),
    ],
)
def test_expectations_that_are_none_are_named_with_either_name_of_the_option(run, tmp_path, option, text, words):
    site = tmp_path / "site.yml"
    if text is not None:
        site.write_text(text)
    status, out, err = run(*QUICK, option, str(site), "-o", str(tmp_path / "never"))

    assert (status, out) == (64, "")
    assert words.format(site) in err
    assert not (tmp_path / "never").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize(("owner", "mode", "caller", "reason"), BASELINES)
def test_root_believes_a_baseline_only_if_no_other_user_wrote_it(
    run, earlier, tmp_path, monkeypatch, owner, mode, caller, reason
):
    baseline = tmp_path / "baseline.json"
    baseline.write_bytes(earlier.read_bytes())
    os.chown(baseline, owner, owner)
    baseline.chmod(mode)
    monkeypatch.setenv("SUDO_UID", caller)
    status, out, err = run(*QUICK, "--baseline", str(baseline))

    assert status == (64 if reason else 0), err
    if reason:
        assert out == ""
        assert f"baseline.json: not read: {baseline} {reason}" in err
        assert "install -D -m 600" in err
