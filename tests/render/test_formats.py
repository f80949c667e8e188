"""What every format of a report promises: marked when simulated, and no host speaks for us in any."""

import json
import re
import subprocess
import sys

import msgspec
import pytest
from msgspec.structs import replace

from gpucheck.model import Finding, Report
from gpucheck.render.formats import FORMATS, LEFT_OUT, render
from tests.render.reports import finding, healthy, hostile, passed, sick, skipped

SICK, HEALTHY, HOSTILE = sick(), healthy(), hostile()


@pytest.mark.parametrize("form", FORMATS)
def test_a_simulated_result_says_so_in_every_format(form):
    text = render(SICK, form)

    assert "SIMULATED" in text or '"simulated": true' in text or 'simulated="true"' in text


@pytest.mark.parametrize("form", FORMATS)
def test_a_real_result_never_says_simulated(form):
    text = render(HEALTHY, form).replace('"simulated": false', "")

    # The page's rules name the mark's class; what stands in its body is said to the reader.
    assert "simulated" not in re.sub(r"<style>.*?</style>", "", text, flags=re.S).lower()


def test_json_has_a_line_for_each_finding():
    lines = render(SICK, "json").splitlines()
    findings = [json.loads(line.strip().removesuffix(",")) for line in lines if line.strip().startswith('{"check"')]

    assert findings == json.loads("\n".join(lines))["findings"]


def test_json_has_the_evidence_of_a_pass_only_with_verbose():
    read = replace(passed(), evidence=("nvmlSystemGetDriverVersion: 580.95.05",))
    mixed = replace(SICK, findings=(read, finding(), replace(skipped(), evidence=("MIG: [N/A]",))))
    lines = [json.loads(render(mixed, "json", verbose=verbose))["findings"] for verbose in (False, True)]

    assert [[bool(one["evidence"]) for one in every] for every in lines] == [[False, True, True], [True] * 3]


def test_json_leaves_out_what_only_some_findings_have():
    pair = finding("p2p", "pair:0000:02:00.0-0000:01:00.0", gpu_index=1, peer_index=0, peer_uuid="GPU-1")
    mixed = replace(SICK, findings=(passed(), pair))
    text = render(mixed, "json")
    plain, of_pair = json.loads(text)["findings"]

    assert set(plain) == set(Finding.__struct_fields__) - {*LEFT_OUT}
    assert {*LEFT_OUT} & set(of_pair) == {"peer_index", "peer_uuid", "steps"}
    for written in (text, msgspec.json.encode(mixed)):  # and as earlier reports state it: null or empty
        assert msgspec.json.decode(written, type=Report).findings == mixed.findings


def test_json_gives_back_what_the_host_said():
    assert json.loads(render(HOSTILE, "json"))["host"] == HOSTILE.host


def test_where_a_recording_comes_from_is_said_to_people():
    assert render(SICK, "text", recorded="recorded on Monday").startswith("recorded on Monday\n")
    assert "recorded on Monday" in render(SICK, "html", recorded="recorded on Monday")
    assert "Recorded on Monday." in render(SICK, "markdown", recorded="recorded on Monday")


def test_only_the_page_loads_the_template_engine():
    """A health check that runs every hour does not pay for it."""
    code = (
        "import sys; from gpucheck.render import formats; from tests.render.reports import sick\n"
        "[formats.render(sick(), f) for f in formats.FORMATS if f != 'html']; print('jinja2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
