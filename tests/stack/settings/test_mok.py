"""The site's key for Secure Boot: in the plan as paths, and to DKMS in a file of its own."""

import pytest

from gpucheck.stack.settings.mok import PATH
from gpucheck.stack.spec import SpecError, parse_spec
from tests.stack.asked import planned

KEY = "mok: {key: /etc/site/mok.key, certificate: /etc/site/mok.der}\n"


@pytest.mark.parametrize("text", ["", "mok: none\n"])
def test_without_a_key_dkms_signs_as_it_does(text):
    found = planned(text)

    assert not found.mok
    assert PATH not in [row["path"] for row in found.files]


def test_dkms_is_told_of_the_key():
    found = planned(KEY)

    assert found.mok == {"key": "/etc/site/mok.key", "certificate": "/etc/site/mok.der"}
    content = next(row["content"] for row in found.files if row["path"] == PATH)
    assert content == "mok_signing_key=/etc/site/mok.key\nmok_certificate=/etc/site/mok.der\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mok: {key: /etc/site/mok.key}\n", "certificate is missing"),
        ("mok: {key: mok.key, certificate: /m.der}\n", "'mok.key' is not an absolute path"),
        ("mok: {key: '/m;reboot', certificate: /m.der}\n", "is not an absolute path"),
        ("mok: {key: '/$(id)', certificate: /m.der}\n", "is not an absolute path"),
        ("mok: yes\n", "s:1: mok"),
    ],
)
def test_what_is_no_key_is_refused(text, words):
    """DKMS reads its settings with a shell."""
    with pytest.raises(SpecError) as refused:
        parse_spec(text, "s")
    assert words in str(refused.value)
