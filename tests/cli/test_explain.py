"""gpucheck explain: every cause, check, code, and error of CUDA and NVML can be asked about."""

import re

import pytest

from gpucheck.checks import checks_of
from gpucheck.cli.explain import by_name
from gpucheck.knowledge import causes, codes
from gpucheck.knowledge.messages import kinds, meaning, rows
from gpucheck.knowledge.xid import cuda_errors, nvml_errors, xids


def test_every_cause_says_what_it_means_how_to_confirm_and_how_to_fix_it(explain):
    """With its source."""
    for name, cause in causes().items():
        output = explain(name)
        assert all(f"  {label} " in output for label in ("means", "confirm", "fix", "source")), name
        commands = {cause.decide, *(step.change or step.run for step in cause.steps)} - {None, ""}
        assert commands <= {line[8:].strip() for line in output.splitlines()}, name


def test_every_code_of_a_finding_is_explained(explain):
    for code, _ in codes.rows():
        output = explain(code)
        assert output.startswith(f"{code}  (finding)\n  means "), code
        assert not re.search(r"(?<!\$)\{[a-z_]+\}", output), code


def test_a_code_has_its_steps_one_a_line_and_the_cause(explain):
    lines = explain("gpu.power-limit-lowered").splitlines()

    assert "             sudo nvidia-smi -i GPU -pl DEFAULT_W" in lines
    assert lines[-1] == "  cause    power-limit-lowered, certain (gpucheck explain power-limit-lowered)"


def test_every_check_says_what_it_asks_and_how_it_decides(explain):
    """From its own module, so that it cannot be out of step; a measuring step and its findings too."""
    for check in checks_of("quick"):
        words = " ".join(explain(check.name).split())
        assert "asks" in words, check.name
        assert "decides Source" in words, check.name
        assert f"gpucheck verify --only {check.name} -v" in words
    for name in ("p2p", "p2p-integrity", "compute-matrix", "smoke-ddp", "smoke-versions", "gpu-health"):
        assert "gpucheck verify --only" in " ".join(explain(name).split()), name
    for name, option in (("baseline", "--baseline REPORT"), ("expectations", "--expect FILE")):
        assert f"gpucheck verify {option} -v" in " ".join(explain(name).split()), name


def test_every_xid_says_what_to_do_now(explain):
    assert [code for code in xids() if "\n  now " not in explain(f"xid:{code}")] == []


def test_a_cause_says_what_it_asks_for_and_of_whom(explain):
    shown = " ".join(explain("gpu-lost").split())
    assert "action reboot: drain and reboot the host (owner: node; Slurm: drain; NVSentinel: RESTART_BM)" in shown
    assert "crossbar" in explain("sxid:23999"), "a code of a switch without a row says its unit"


def test_usual_rates_of_a_model_name_their_sources(explain):
    output = explain("normal:RTX 4090")

    assert re.search(r"^GeForce RTX 4090 +PCIe Gen4 x16, patched driver +copy +2 +20.6 to 26 +1$", output, re.MULTILINE)
    assert "tinygrad/open-gpu-kernel-modules#6" in output
    assert "H100" not in output.partition("\nGPU")[2]
    assert explain("normal").count("\n") > 60


# Title, and what is in the answer -> ways to ask.
FORMS = {
    ("Xid 79", "gpu-lost"): (["XID", "79"], ["XID 79"], ["79"], ["xid79"], ["xid:79"]),
    ("SXid 20034", "FAIL"): (["sxid:20034"], ["20034"], ["sxid20034"]),
    ("NVML error 15", "gpu-lost (gpucheck explain gpu-lost)"): (
        *(["nvml:15"], ["nvml 15"], ["GPU is lost"], ["gpu is lost"], ["NVML_ERROR_GPU_IS_LOST"], ["GPU_IS_LOST"]),
        ["nvml error 15"],
    ),
    ("CUDA error 802", "fabric-manager-down"): (
        *(["cuda:802"], ["cuda 802"], ["cudaErrorSystemNotReady"], ["CUDA_ERROR_SYSTEM_NOT_READY"]),
        ["system not yet initialized"],
    ),
}


@pytest.mark.parametrize(("words", "what"), [(words, what) for words, forms in FORMS.items() for what in forms])
def test_a_code_in_words_of_its_own(explain, words, what):
    output = explain(*what)

    assert [word for word in words if word not in output] == []


def test_every_error_of_cuda_and_nvml_is_explained(explain):
    for code, row in cuda_errors().items():
        assert row.text.split()[0] in explain(f"cuda:{code}"), code
    for code, row in nvml_errors().items():
        assert explain(f"nvml:{code}")
        assert by_name(row.name) == row
        assert row.cause is None or row.cause in causes(), code


def test_the_prefix_decides_between_texts_of_both():
    assert by_name("nvml:unknown error") == nvml_errors()[999]
    assert by_name("cuda:unknown error") == cuda_errors()[999]


def test_a_bare_number_is_an_xid_and_names_the_others(explain):
    output = " ".join(explain("46").split())

    assert output.startswith("Xid 46")
    assert "need a prefix: cuda:46 (cudaErrorDevicesUnavailable)" in output


@pytest.mark.parametrize("kind", kinds())
def test_every_message_has_a_cause_that_exists_and_a_key_of_its_file(kind):
    for row in rows(kind):
        assert row.key.startswith(f"{kind}.")
        assert row.cause is None or row.cause in causes()
        assert (row.cause is None) == (row.confidence is None), row.key
        assert row.says
        assert row.source


def test_texts_of_cuda_have_their_meaning_with_their_names():
    """The name alone and the text alone say the same."""
    for row in cuda_errors().values():
        one = meaning("cuda-error", str(row.name))
        if one is not None and row.driver:
            other = meaning("cuda-error", row.driver)
            assert other is None or one[0].key == other[0].key, row
