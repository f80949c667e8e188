"""Signing keys of package sources, read as root on a host."""

from tests.fuzz.oracles import refusing
from tests.fuzz.seeds import attacks, documents
from tests.fuzz.target import target


@target(seeds=documents.keys, format="bytes", rate=5000, attacks=attacks.keys)
def openpgp_key(data: bytes) -> None:
    """playbooks/plugins/module_utils/openpgp.py."""
    from tests.playbooks.modules import shared

    openpgp = shared("openpgp")
    with refusing():
        key = openpgp.read_key(data)
        fingerprint = openpgp.fingerprint(key)
        assert len(fingerprint) in (40, 64)
        shared("gpu_keys").armor(key)
