"""gpucheck explain: errors of CUDA and NVML."""

import pytest

from gpucheck.cli.explain import by_name
from gpucheck.knowledge import causes
from gpucheck.knowledge.messages import kinds, meaning, rows
from gpucheck.knowledge.xid import cuda_errors, nvml_errors

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
