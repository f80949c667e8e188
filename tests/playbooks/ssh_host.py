"""Hosts reached by SSH: a real sshd for every connection, as the user of the tests, with keys of its own.

ssh starts sshd as its ProxyCommand, so there is no port, no service, and nothing that stays when the connection ends.
"""

import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.playbooks.stubs import script

# Debian and Ubuntu; the EL family; SUSE and Arch.
SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
METHODS = ("sftp", "scp", "piped")
CONFIGURATION = """HostKey {folder}/host_key
AuthorizedKeysFile {folder}/login_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
LogLevel QUIET
MaxSessions 100
Subsystem sftp {sftp}
ForceCommand {forced}
"""
# The host is this machine, so nothing that is asked of it may stop it.
FORCED = """#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in *systemctl*|*shutdown*) echo "not on a machine that runs tests" >&2; exit 1;; esac
{shell}
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


class Hosts:
    """Keys and settings of the hosts of one inventory."""

    def __init__(self, folder: Path) -> None:
        """folder: one that exists, for keys and settings."""
        self.folder = folder
        found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        servers = [name for name in SFTP_SERVERS if Path(name).exists()]
        assert found, "sshd is missing: install openssh-server (make tools does this)"
        assert servers, "the sftp-server of openssh-server is missing"
        self.sshd, self.sftp = found, servers[0]
        if os.geteuid() == 0:
            # What the service creates when it starts.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name in ("host_key", "login_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
            subprocess.run(words, check=True)
        (folder / "known_hosts").write_text(f"* {(folder / 'host_key.pub').read_text()}")

    def variables(self, place: Path, shell: str = "") -> dict[str, Any]:
        """Inventory variables of a host. place: its folder. shell: what its login shell does before any command."""
        forced = script(place / "forced", FORCED.format(shell=shell))
        (place / "sshd_config").write_text(CONFIGURATION.format(folder=self.folder, sftp=self.sftp, forced=forced))
        options = {
            "ProxyCommand": f"'{self.sshd} -i -f {place}/sshd_config'",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
        }
        return {
            "ansible_connection": "ssh",
            "ansible_host": place.name,
            "ansible_user": getpass.getuser(),
            "ansible_ssh_private_key_file": str(self.folder / "login_key"),
            "ansible_ssh_common_args": " ".join(["-F none", *(f"-o {key}={value}" for key, value in options.items())]),
            "reboot_command": "/bin/false",
        }

    def environment(self, method: str) -> dict[str, str]:
        """Of one ansible-playbook, until close. method: how it transfers files."""
        # Sockets have short names only.
        self.sockets = Path(tempfile.mkdtemp(prefix="gpucheck-ssh-", dir="/tmp"))
        return {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets), "ANSIBLE_SSH_TRANSFER_METHOD": method}

    def close(self) -> None:
        """End the connections that Ansible keeps open."""
        for socket in self.sockets.iterdir():
            subprocess.run(["ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={socket}", "x"], capture_output=True)
        shutil.rmtree(self.sockets, ignore_errors=True)  # a connection removes its socket while it ends
