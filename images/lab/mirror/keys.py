"""Signing keys, made when they are missing: they exist nowhere but in the mirror's container."""

import shutil

from programs import KEYS, run


def key(name):
    """Make a signing key unless it is there. Returns its folder."""
    home = KEYS / name
    if not (home / "fingerprint").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True, mode=0o700)
        identity = f"gpucheck lab {name} key"
        gpg = ("gpg", "--batch", "--homedir", home)
        run(*gpg, "--passphrase", "", "--quick-gen-key", identity, "rsa3072", "sign", "never")
        (home / "key.asc").write_text(run(*gpg, "--armor", "--export"))
        lines = run(*gpg, "--with-colons", "--fingerprint").splitlines()
        fingerprint = next(line.split(":")[9] for line in lines if line.startswith("fpr:"))
        (home / "fingerprint").write_text(fingerprint)
    return home


def gpg_sign(home, *arguments):
    """Sign with the key in a folder."""
    run("gpg", "--batch", "--yes", "--homedir", home, "--passphrase", "", "--pinentry-mode", "loopback", *arguments)
