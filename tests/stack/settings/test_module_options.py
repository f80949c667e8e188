"""Options of the nvidia module: from stack.yml into one file that the initramfs carries too."""

import pytest

from gpucheck.stack.settings.module_options import options_line
from gpucheck.stack.spec import SpecError, parse_spec
from tests.stack.asked import planned

PATH = "/etc/modprobe.d/gpucheck-nvidia.conf"


def files(text: str) -> dict[str, dict[str, object]]:
    return {str(row["path"]): row for row in planned(text, "ubuntu-22.04").files}


def test_options_are_one_line_in_a_file_that_asks_for_a_new_initramfs():
    row = files("module_options: {NVreg_RestrictProfilingToAdminUsers: 0, NVreg_CoherentGPUMemoryMode: driver}\n")[PATH]

    assert row["content"] == (
        "options nvidia NVreg_CoherentGPUMemoryMode=driver NVreg_RestrictProfilingToAdminUsers=0\n"
    )
    assert row["initramfs"] is True


@pytest.mark.parametrize("text", ["", "module_options: none\n", "module_options: {}\n"])
def test_without_options_there_is_no_file(text):
    assert PATH not in files(text)


def test_a_value_that_is_a_list_is_quoted():
    assert options_line({"NVreg_RegistryDwords": "A=1;B=0x2"}) == 'options nvidia NVreg_RegistryDwords="A=1;B=0x2"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("module_options: {RestrictProfiling: 0}\n", "module_options.RestrictProfiling: is not an nvidia module"),
        ("module_options:\n  NVreg_A: 'x y'\n", "stack.yml:2: module_options.NVreg_A: 'x y' is not valid in"),
        ("module_options: {NVreg_A: '1\\ninstall nvidia /bin/false'}\n", "is not valid in a modprobe file"),
        ("module_options: some\n", "some is not possible"),
    ],
)
def test_what_would_break_the_file_names_the_line(text, words):
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "stack.yml")

    assert words in str(caught.value)
