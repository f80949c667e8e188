"""verify --format and -o: a file is what stdout would have been."""

import pytest

from gpucheck.cli._shared.common import OutputFile, Problem
from gpucheck.cli.verify import write_report
from gpucheck.render.formats import FORMATS
from tests.render.reports import sick

REPORT = sick(2)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_is_what_stdout_would_have_been(format_, tmp_path, capsys):
    write_report(REPORT, format_, tmp_path / "file", mark="", verbose=False, fail_on="warn")
    write_report(REPORT, format_, None, mark="", verbose=False, fail_on="warn")

    assert (tmp_path / "file").read_text() == capsys.readouterr().out


def test_an_output_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(Problem, match="Not a directory") as problem:
        OutputFile().convert(str(tmp_path / "file/report.html"), None, None)

    assert problem.value.exit_code == 64
    assert (tmp_path / "file").read_text() == "old"


def test_a_directory_is_no_file(run, tmp_path):
    status, out, err = run("verify", "--simulate", "no-gpu", "--level", "quick", "-o", str(tmp_path))

    assert (status, out) == (64, "")
    assert "is a directory" in err
