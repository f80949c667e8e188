"""Signing keys of package sources, read as root on a host."""

from tests.fuzz.oracles import refusing
from tests.fuzz.seeds import attacks, documents
from tests.fuzz.target import target


@target(seeds=documents.keys, format="bytes", attacks=attacks.keys)
def openpgp_key(data: bytes) -> None:
    """module_utils/openpgp.py of the collection."""
    from tests.playbooks.modules import shared

    openpgp = shared("openpgp")
    with refusing():
        key = openpgp.read_key(data)
        found = openpgp.fingerprints(key)
        assert found
        assert all(len(one) in (40, 64) for one in found)
