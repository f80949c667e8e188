"""verify --format and -o: every format from one run, a folder complete or not at all."""

import json

import pytest

from gpucheck.cli._shared.output import OutputFile, Problem
from gpucheck.cli.verify import output as module
from gpucheck.cli.verify.output import refuse, write_folder, write_report
from gpucheck.render.formats import FILES
from tests.render.reports import sick

QUICK = ("verify", "--simulate", "p100-pcie-x2", "--level", "quick")
REPORT = sick(2)


def write(format_, output):
    refuse(format_, output)
    write_report(REPORT, format_, output, mark="", verbose=False)


def test_all_formats_of_one_run_stand_in_a_folder(run, tmp_path):
    status, out, _ = run(*QUICK, "--format", "all", "-o", str(tmp_path / "new" / "reports"))

    assert (status, out) == (0, "")
    assert {path.name for path in (tmp_path / "new" / "reports").iterdir()} == set(FILES.values())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["reports"]
    assert json.loads((tmp_path / "new" / "reports" / "report.json").read_text())["verdict"] == "pass"


@pytest.mark.parametrize("format_", sorted(FILES))
def test_a_file_is_what_stdout_would_have_been(format_, tmp_path, capsys):
    write(format_, tmp_path / "file")
    write(format_, None)

    assert (tmp_path / "file").read_text() == capsys.readouterr().out


def test_an_earlier_folder_is_replaced_as_a_whole(tmp_path):
    write("all", tmp_path / "reports")
    (tmp_path / "reports" / "report.json").write_text("old")
    write("all", tmp_path / "reports")

    assert json.loads((tmp_path / "reports" / "report.json").read_text())["host"] == "node07"
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write("all", tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "report.html").is_file()


def test_a_folder_with_other_files_is_refused_before_the_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Problem, match=r"thesis\.tex"):
        refuse("all", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("fails", ["rename", "write"])
@pytest.mark.parametrize("before", [True, False])
def test_a_folder_is_complete_or_as_it_was(tmp_path, monkeypatch, before, fails):
    if before:
        write("all", tmp_path / "reports")
        (tmp_path / "reports" / "report.txt").write_text("old")

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    if fails == "write":
        monkeypatch.setattr("os.fsync", full)
    else:
        real = module.Path.rename
        monkeypatch.setattr(
            module.Path, "rename", lambda a, b: full() if (a / "report.txt").read_text() != "old" else real(a, b)
        )
    with pytest.raises(Problem, match="No space left on device"):
        write_folder(dict.fromkeys(FILES.values(), "new"), tmp_path / "reports")

    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == (["reports"] if before else [])
    assert not before or (tmp_path / "reports" / "report.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("format_", "output", "words"),
    [
        ("all", None, "-o DIR"),
        ("all", "file", "is a file"),
        ("all", "file/reports", "is not a directory"),
        ("html", "file/report.html", "is not a directory"),
        ("html", ".", "writes a file"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_run(tmp_path, format_, output, words):
    (tmp_path / "file").write_text("old")

    def before_the_run():
        given = output and OutputFile(folder=True).convert(str(tmp_path / output), None, None)
        refuse(format_, given)

    with pytest.raises(Problem, match=words) as problem:
        before_the_run()

    assert problem.value.exit_code == 64
    assert (tmp_path / "file").read_text() == "old"
