"""The lab's mirror once more, by a server that answers nobody without a client certificate."""

import subprocess
from pathlib import Path

from tests.lab.e2e import ROOT

PORT = 8443
SERVER = f"""
import functools, http.server, ssl
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory='/srv/www')
server = http.server.ThreadingHTTPServer(('', {PORT}), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('/srv/tls/server.pem', '/srv/tls/server.key')
context.load_verify_locations('/srv/tls/ca.pem')
context.verify_mode = ssl.CERT_REQUIRED
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def sh(*words: str | Path, cwd: Path = ROOT) -> str:
    """Run a program that has to succeed, and return what it prints."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def certificates(folder: Path, ip: str) -> None:
    """A certificate authority, and of it one certificate for the server and one for hosts: NAME.pem and NAME.key."""
    fresh = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    sh(
        *fresh,
        "-x509",
        "-subj",
        "/CN=The site (SIMULATED)",
        *usage,
        "-keyout",
        folder / "ca.key",
        "-out",
        folder / "ca.pem",
    )
    for name in ("server", "client"):
        request, names = folder / f"{name}.csr", folder / f"{name}.ext"
        sh(*fresh, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", request)
        names.write_text(f"subjectAltName=IP:{ip}\n")
        signer = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", names)
        sh("openssl", "x509", "-req", "-in", request, "-days", "2", *signer, "-out", folder / f"{name}.pem")


def serve(mirror: str, folder: Path) -> None:
    """Start the server in the mirror's container; it ends with that."""
    sh("docker", "exec", mirror, "mkdir", "-p", "/srv/tls")
    for name in ("ca.pem", "server.pem", "server.key"):
        sh("docker", "cp", folder / name, f"{mirror}:/srv/tls/{name}")
    sh("docker", "exec", "-d", mirror, "python3", "-c", SERVER)
