"""stack.yml: a mistake is one message with file, line and key."""

from pathlib import Path

import pytest

from gpucheck.foreign import UnreadableInput
from gpucheck.stack import Wish, WishError, parse_wish, read_wish, wants


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
            "stack.yml:3: repositories.nvidia-cuda.signed: 'all' is none of packages, metadata, both",
        ),
        (
            "repositories:\n  nvidia-cuda:\n    ulr: x\n",
            "stack.yml:3: repositories.nvidia-cuda.ulr: no such key. Did you",
        ),
        ("schema: gpucheck.wish/9\n", "stack.yml:1: schema: 'gpucheck.wish/9' is not"),
        ("cuda:\n", "stack.yml:1: cuda: is empty"),
        ("cuda: none\n\nnccl: 2.29.3\n", "stack.yml:3: nccl: contradicts line 1: cuda is none"),
        ("cudnn: 9.10\ncuda: none\n", "stack.yml:1: cudnn: contradicts line 2: cuda is none"),
        ("cuda: 13.0\nnccl: 2.29.3+cuda12.9\n", "stack.yml:2: nccl: contradicts line 1: cuda is 13.0"),
    ],
)
def test_a_mistake_names_file_line_and_key(text, message):
    """And says what was probably meant."""
    with pytest.raises(WishError) as caught:
        parse_wish(text, "stack.yml")

    assert str(caught.value).startswith(message)


def test_numbers_stay_as_they_were_written():
    """As a YAML number 13.10 would become 13.1."""
    assert parse_wish("cuda: 13.10\ndriver: 580\n", "s").cuda == "13.10"


def test_the_projects_own_wish_is_all_auto():
    """What ships wishes for nothing in particular."""
    assert read_wish(Path("stack.yml")) == Wish()


def test_an_empty_file_wishes_for_nothing_in_particular():
    """Like the one that ships."""
    assert parse_wish("", "s") == parse_wish("# nothing\n", "s") == Wish()


def test_a_file_that_is_not_there_is_named(tmp_path):
    """Not a traceback."""
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_wish(tmp_path / "absent.yml")


def test_wants_understand_versions_and_ranges():
    """As people type them."""
    wish = wants(("cuda=12.9", "torch>=2.7,<2.10", "container-toolkit==1.18.1", "kernel-module=open"))

    assert (wish.cuda, wish.torch, wish.container_toolkit) == ("12.9", ">=2.7,<2.10", "1.18.1")
    assert wish.kernel_module == "open"


def test_wants_that_rule_each_other_out_are_refused():
    """As in the file; equal majors and builds without a stated toolkit are no contradiction."""
    with pytest.raises(WishError, match=r"--want nccl=2.29.3\+cuda12.9: cuda is 13"):
        wants(("nccl=2.29.3+cuda12.9", "cuda=13"))

    assert wants(("nccl=2.29.3+cuda12.9", "cuda=12.8")).cuda == "12.8"
    assert wants(("nccl=2.29.3+cuda12.9",)).cuda == "auto"


@pytest.mark.parametrize("item", ["cudaa=12", "cuda", "cuda=", "cuda=x", "=1"])
def test_a_want_that_cannot_be_understood_is_refused(item):
    """Naming the word itself."""
    with pytest.raises(WishError, match="--want"):
        wants((item,))
