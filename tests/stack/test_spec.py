"""stack.yml: a mistake is one message with file, line and key."""

from pathlib import Path

import pytest

from gpucheck.foreign import UnreadableInput
from gpucheck.stack import SpecError, StackSpec, parse_spec, read_spec, wants


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("driver: auto\ncudn: auto\n", "stack.yml:2: cudn: no such key. Did you mean 'cudnn'?"),
        ("driver: auto\n\ncuda: newest\n", "stack.yml:3: cuda: 'newest' is neither"),
        ("driver: none\n", "stack.yml:1: driver: 'none' is not possible"),
        ("cuda: auto\ncuda: none\n", "stack.yml:2: cuda: stated twice"),
        ("cuda: [12, 13]\n", "stack.yml:1: cuda: must be a single value"),
        ("- cuda\n", "stack.yml:1: this must be 'key: value' lines"),
        ("cuda: 'auto\n", "stack.yml:2: not YAML"),
        ("kernel_module: opne\n", "stack.yml:1: kernel_module: 'opne' is not possible. Did you mean 'open'?"),
        (
            "repositories:\n  nvidia-cuda:\n    key_fingerprint: 3BF863CC\n",
            "stack.yml:3: repositories.nvidia-cuda.key_fingerprint: '3BF863CC' is not a fingerprint of 40 or 64 hex",
        ),
        (
            "repositories:\n  nvidia-cuda:\n    signed: all\n",
            "stack.yml:3: repositories.nvidia-cuda.signed: 'all' is not one of packages, metadata, both",
        ),
        (
            "repositories:\n  nvidia-cuda:\n    ulr: x\n",
            "stack.yml:3: repositories.nvidia-cuda.ulr: no such key. Did you",
        ),
        ("schema: gpucheck.spec/9\n", "stack.yml:1: schema: 'gpucheck.spec/9' is not"),
        ("cuda:\n", "stack.yml:1: cuda: is empty"),
        ("cuda: none\n\nnccl: 2.29.3\n", "stack.yml:3: nccl: contradicts line 1: cuda: none"),
        ("cudnn: 9.10\ncuda: none\n", "stack.yml:1: cudnn: contradicts line 2: cuda: none"),
        ("cuda: 13.0\nnccl: 2.29.3+cuda12.9\n", "stack.yml:2: nccl: contradicts line 1: cuda is 13.0"),
    ],
)
def test_a_mistake_names_file_line_and_key(text, message):
    """And says what was probably meant."""
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "stack.yml")

    assert str(caught.value).startswith(message)


def test_numbers_stay_as_they_were_written():
    """As a YAML number 13.10 would become 13.1."""
    assert parse_spec("cuda: 13.10\ndriver: 580\n", "s").cuda == "13.10"


@pytest.mark.parametrize("schema", ["gpucheck.spec/1", "gpucheck.wish/1"])
def test_present_and_former_schema_are_read(schema):
    assert parse_spec(f"schema: {schema}\ncuda: 12.9\n", "stack.yml").cuda == "12.9"


def test_the_projects_own_spec_is_all_auto():
    """What ships requests nothing in particular."""
    assert read_spec(Path("stack.yml")) == StackSpec()


def test_empty_file_requests_nothing_in_particular():
    """Like the one that ships."""
    assert parse_spec("", "s") == parse_spec("# nothing\n", "s") == StackSpec()


def test_a_file_that_is_not_there_is_named(tmp_path):
    """Not a traceback."""
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_spec(tmp_path / "absent.yml")


def test_wants_understand_versions_and_ranges():
    """As people type them."""
    spec = wants(("cuda=12.9", "torch>=2.7,<2.10", "container-toolkit==1.18.1", "kernel-module=open"))

    assert (spec.cuda, spec.torch, spec.container_toolkit) == ("12.9", ">=2.7,<2.10", "1.18.1")
    assert spec.kernel_module == "open"


def test_wants_that_rule_each_other_out_are_refused():
    """As in the file; equal majors and builds without a stated toolkit are no contradiction."""
    with pytest.raises(SpecError, match=r"--want nccl=2.29.3\+cuda12.9: cuda is 13"):
        wants(("nccl=2.29.3+cuda12.9", "cuda=13"))

    assert wants(("nccl=2.29.3+cuda12.9", "cuda=12.8")).cuda == "12.8"
    assert wants(("nccl=2.29.3+cuda12.9",)).cuda == "auto"


@pytest.mark.parametrize("item", ["cudaa=12", "cuda", "cuda=", "cuda=x", "=1"])
def test_a_want_that_cannot_be_understood_is_refused(item):
    """Naming the word itself."""
    with pytest.raises(SpecError, match="--want"):
        wants((item,))
