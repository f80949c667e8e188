"""Man pages and completion scripts say what --help says."""

import gzip
import shutil
import subprocess

import click
import pytest

from gpucheck.cli import cli
from release.man import SHELLS, completion, contexts, page, texts

DATE = 1_700_000_000
CONTEXTS = dict(contexts(cli, "gpucheck", None))


def test_every_command_has_a_page():
    made = texts(cli, "1.0", DATE)

    assert {"gpucheck", "gpucheck-verify", "gpucheck-stack-lock", "gpucheck-fleet-report"} <= CONTEXTS.keys()
    assert {f"usr/share/man/man1/{name}.1.gz" for name in CONTEXTS} | set(SHELLS.values()) == made.keys()
    assert gzip.decompress(made["usr/share/man/man1/gpucheck.1.gz"]).startswith(b".TH GPUCHECK 1 2023-11-14")


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_page_has_every_option(name):
    context = CONTEXTS[name]
    text = page(context, name, "1.0", DATE).replace("\\-", "-")

    for param in context.command.get_params(context):
        if isinstance(param, click.Option) and not param.hidden:
            assert any(one in text for one in param.opts)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("name", CONTEXTS)
def test_groff_reads_a_page_without_a_warning(name):
    text = page(CONTEXTS[name], name, "1.0", DATE)
    words = ["groff", "-man", "-Tutf8", "-ww", "-rLL=200n"]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)

    assert done.stderr == ""
    assert done.stdout.startswith(name.upper())


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_call_this_command(shell):
    script = completion(cli, shell)

    assert f"_GPUCHECK_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
