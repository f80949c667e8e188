# ruff: noqa: E501 - one row a case
"""What identifies is gone from a recording, equal things stay equal, and what is evaluated stays as it was."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.host.recording.redaction import Redaction, encodable, of_recording, redacted
from gpucheck.model import Fabric, Health, RackPlace
from tests.fakes import SYSTEM, facts, kernel_log
from tests.host.recording.test_recording import written
from tests.machines import LOADED, h100, on_bus, reading

HEX40 = "4f3c2b1a0d9e8f7c6b5a493827160594a3b2c1d0"
B64 = "wJalrXUtnFEMIaK7MDENGbPxRfiCYzEXAMPLE1Key"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlX29mX2l0"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nQmFzZQ==\n-----END OPENSSH PRIVATE KEY-----"
GHP = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

# Where it was planted (env NAME, log, cmdline, or a file's path), the text, and what of it must not stay.
PLANTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # secrets by shape, in values whose name says nothing
    ("env TORCH_EXTRA", GHP, (GHP,)),
    ("env TORCH_EXTRA", "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz012345", ("github_pat_11ABC",)),
    ("env TORCH_EXTRA", "glpat-Zx9_kLmNoPqRsTuVwXyZ", ("glpat-", "Zx9_")),
    ("env TORCH_EXTRA", "xoxb-123456789012-abcdefABCDEF", ("xoxb-", "abcdefABCDEF")),
    ("env TORCH_EXTRA", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", ("hf_AbCd",)),
    ("env TORCH_EXTRA", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789", ("sk-proj", "abcdefghij")),
    ("env TORCH_EXTRA", "AKIAIOSFODNN7EXAMPLE", ("AKIAIOSF",)),
    ("env TORCH_EXTRA", "ASIAIOSFODNN7EXAMPLE", ("ASIAIOSF",)),
    ("env TORCH_EXTRA", "AIzaSyA1234567890abcdefghijklmnopqrstuv", ("AIzaSy",)),
    ("env TORCH_EXTRA", "ya29.a0AfH6SMBx1234567890abcdefg", ("a0AfH6",)),
    ("env TORCH_EXTRA", f"session {JWT}", ("eyJhbGci", "c2lnbmF0dXJl")),
    ("env TORCH_EXTRA", PEM, ("b3BlbnNz", "QmFzZQ")),
    ("env TORCH_EXTRA", PEM.replace("\n", "\\n"), ("b3BlbnNz", "QmFzZQ")),
    ("env TORCH_EXTRA", "nvapi-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", ("nvapi-AbC",)),
    ("env TORCH_EXTRA", "npm_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", ("npm_AbC",)),
    ("env TORCH_EXTRA", "hvs.CAESIJabcdefghijklmnopqrstuv", ("CAESIJ",)),
    ("env TORCH_EXTRA", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJabcdefghijklmnopqrstuvwxyzABCDEF alice@node17", ("AAAAC3", "alice")),
    ("env TORCH_EXTRA", B64, (B64,)),
    ("env TORCH_EXTRA", f"wandb: logged in with {HEX40}", (HEX40,)),
    ("env TORCH_EXTRA", "https://hooks.slack.com/services/T000/B000/XXXXabcd", ("T000", "XXXXabcd")),
    ("env TORCH_EXTRA", "AccountName=acct1;AccountKey=Zm9vYmFyYmF6cXV4==;", ("Zm9vYmFy",)),
    ("env TORCH_EXTRA", "https://acme.blob.core.windows.net/c?sv=2024-01-01&sig=Zm9vYmFy%2B", ("Zm9vYmFy", "acme")),
    # secrets by name
    ("env CUDA_MY_PWD", "hunter2", ("hunter2",)),
    ("env NCCL_AUTH", "swordfish", ("swordfish",)),
    ("env NCCL_COOKIE", "c00kie-value", ("c00kie",)),
    ("env TORCH_APIKEY", "abcdef123", ("abcdef123",)),
    ("env WANDB_API_KEY", HEX40, (HEX40,)),
    ("env TF_CREDS", "alice/pw", ("alice/pw",)),
    ("env TF_CREDENTIALS", "blob1", ("blob1",)),
    ("env DB_PASSPHRASE", "correct horse", ("correct", "horse")),
    ("env MY_SECRET", "s3cr3t", ("s3cr3t",)),
    ("env REGISTRY_TOKEN", "1234567", ("1234567",)),
    ("env ACCESSKEY", "plainvalue", ("plainvalue",)),
    ("env SENTRY_DSN", "opaque-value-1", ("opaque-value",)),
    ("log", "AWS_SECRET_ACCESS_KEY=abc/def+ghi started", ("abc/def+ghi",)),
    ("log", "app: password=hunter2 accepted", ("hunter2",)),
    ("log", "app: password: hunter2", ("hunter2",)),
    ("log", 'app: {"apikey": "k-1234", "n": 1}', ("k-1234",)),
    ("log", "app: db_passwd='two words'", ("two words",)),
    ("log", 'app: client_secret="two words"', ("two words",)),
    ("log", "audit: cmd=curl -H 'Authorization: Bearer abc123def456' x", ("abc123def456",)),
    ("log", "http: Authorization: Basic YWxpY2U6aHVudGVyMg==", ("YWxpY2U6",)),
    ("log", "http: bearer abc123def456ghi", ("abc123def456ghi",)),
    ("log", "http: Cookie: session=abcdefgh", ("abcdefgh",)),
    ("log", "http: X-Api-Key: 9f8e7d6c", ("9f8e7d6c",)),
    ("log", "run --token=tok123 --epochs 3", ("tok123",)),
    ("log", "run --token tok123 --epochs 3", ("tok123",)),
    ("log", "run -v --api-key 'k 1234' --epochs 3", ("k 1234",)),
    ("log", "curl -u alice:hunter2 x", ("hunter2", "alice:")),
    ("log", "curl --user alice:hunter2 x", ("hunter2", "alice:")),
    ("log", "machine h login alice password hunter2", ("hunter2",)),
    ("log", "fetch https://alice:hunter2@mirror/x", ("alice", "hunter2")),
    ("log", "fetch https://alice:p@ss/w0rd@mirror/x", ("alice", "p@ss", "w0rd")),
    ("log", "fetch https://oauth2token1@git.acme.com/x.git", ("oauth2token1", "acme")),
    ("env TORCH_HOME", "https://alice:pw12@files.acme.com/torch", ("alice", "pw12", "acme")),
    ("env TORCH_INDEX", "--extra-index-url=https://alice:TOK3N@pypi.acme.com/simple", ("alice", "TOK3N", "acme")),
    ("env TF_CONFIG", '{"apikey": "k-1234", "task": {"type": "worker", "index": 0}}', ("k-1234",)),
    ("env TF_CONFIG", '{"nested": {"auth": {"password": "a\\"bzz9"}}}', ('a\\"', "bzz9")),
    ("/etc/docker/daemon.json", '{"proxies": {"http-proxy": "http://alice:TOK3N@proxy.acme.com:3128"}}', ("alice", "TOK3N", "acme")),
    ("/etc/nccl.conf", "NCCL_TOKEN=abcdefg", ("abcdefg",)),
    ("log", 'app: password="cut offf', ("cut", "offf")),
    ("cmdline", "ro quiet ks.password=hunter2", ("hunter2",)),
    # hosts and domains
    ("env MASTER_ADDR", "node17.cluster.acme.com", ("node17", "acme", "cluster.acme")),
    ("env MASTER_ADDR", "zeus", ("zeus",)),
    ("env NCCL_COMM_ID", "trainhead:29500", ("trainhead",)),
    ("env TORCH_RDZV_ENDPOINT", "c10dhost-3:29400", ("c10dhost",)),
    ("env TF_CONFIG", '{"cluster": {"worker": ["tfa:2222", "tfb.acme.com:2222"]}, "task": {"index": 0}}', ("tfa", "tfb", "acme")),
    ("env SLURM_JOB_NODELIST", "gpu[01-03,07],big-node9", ("gpu[", "big-node9")),
    ("env SLURM_SUBMIT_HOST", "login-blue", ("login-blue",)),
    ("env LSB_HOSTS", "lsfa1 lsfa1 lsfb2", ("lsfa1", "lsfb2")),
    ("log", "nfs: server filer not responding, still trying", ("filer",)),
    ("log", "nfs: server nas01.acme.de OK", ("nas01", "acme")),
    ("log", "Hostname set to <quartz-12>.", ("quartz",)),
    ("log", "IP-Config: host=basalt, domain=acme.com, nis-domain=acmenis", ("basalt", "acme")),
    ("log", "bootserver=10.9.8.7, rootserver=10.9.8.7, rootpath=", ("10.9.8.7",)),
    ("log", "connect to http://grafana.intern.acme.io:3000/d", ("grafana", "acme")),
    ("log", "peer gpu-b.hpc.uni-example.edu lost", ("gpu-b", "uni-example")),
    ("log", "peer ip-10-1-2-3 lost", ("10-1-2-3",)),
    ("log", "connect to node7.acme.com(10.4.1.2) refused", ("node7", "acme", "10.4.1.2")),
    ("log", "Nov 05 13:55:26 basalt kernel: NVRM: loading", ("basalt",)),
    ("log", "iscsi: iqn.2004-01.com.acme:storage.disk1", ("acme", "disk1")),
    ("cmdline", "ip=10.1.2.3::10.1.2.1:255.255.255.0:basalt:eth0:none", ("basalt", "10.1.2.")),
    ("cmdline", "systemd.hostname=basalt root=/dev/nfs nfsroot=10.1.2.9:/srv/basaltroot", ("basalt", "10.1.2.9")),
    ("/etc/resolv.conf", "search lab.acme.com acme.com\nnameserver 10.1.2.3\n", ("acme", "10.1.2.3")),
    ("/etc/hosts", "10.1.2.3 node17.acme.com\n", ("10.1.2.3", "node17", "acme")),
    ("/etc/nvidia-imex/nodes_config.cfg", "10.1.2.3\n10.1.2.4\n", ("10.1.2.3", "10.1.2.4")),
    ("/etc/docker/daemon.json", '{"insecure-registries": ["registry.acme.com:5000", "10.1.2.3:5000"]}', ("acme", "10.1.2.3")),
    # users and projects
    ("env LD_LIBRARY_PATH", "/home/alice/lib", ("alice",)),
    ("env LD_LIBRARY_PATH", "/data/alice/lib:/scratch/mallory/x", ("alice", "mallory")),
    ("env PYTHONPATH", "/root/projects/topsecret-llm", ("topsecret",)),
    ("env PYTHONPATH", "/home/alice/projects/topsecret-llm/src", ("alice", "topsecret")),
    ("env PYTHONPATH", "/mnt/acmefs/team/run7.py", ("acmefs", "team", "run7")),
    ("env PYTHONPATH", "/tmp/alice-run", ("alice",)),
    ("log", "mount: lowerdir=/etc/nccl/topo.xml,/home/alice/x", ("alice",)),
    ("log", "password=\n'apikey': 'Tok123abc' user: 'token': 'Abc987tok'", ("Tok123abc", "Abc987tok")),
    ("env PYTHONPATH", "/lustre/fsw/coreai/users/alice", ("coreai", "alice")),
    ("env PYTHONPATH", "/Users/alice/x", ("alice",)),
    ("log", "audit: user=mallory exe=/usr/bin/x", ("mallory",)),
    ("log", 'audit: acct="mallory" exe=/usr/bin/x', ("mallory",)),
    ("log", "sudo: mallory : TTY=pts/0 ; PWD=/home/mallory", ("mallory",)),
    ("log", "login: uid=1000(mallory) gid=1000(mallory)", ("mallory",)),
    ("log", "sshd: Failed none for user mallory from 10.1.2.3 port 22", ("mallory", "10.1.2.3")),
    ("log", "contact mallory@acme.com", ("mallory", "acme")),
    ("log", "ssh mallory@quartz12 nvidia-smi", ("mallory", "quartz12")),
    ("log", "segfault in /home/mallory/bin/a.out", ("mallory",)),
    # addresses
    ("log", "peer 10.4.17.9 down", ("10.4.17.9",)),
    ("log", "peer [2001:db8:1::17]:22 down", ("2001:db8",)),
    ("log", "peer FE80::0C42:A1FF:FEDE:ADBE down", ("FE80::", "ADBE")),
    ("log", "peer ::ffff:10.4.17.9 down", ("10.4.17.9",)),
    ("log", "lnet: 10.4.17.9@o2ib down", ("10.4.17.9",)),
    ("env NCCL_PEERS", "10.4.17.9,10.4.17.10", ("10.4.17.9", "10.4.17.10")),
    ("log", "eth0: 0c:42:a1:de:ad:be up", ("0c:42:a1",)),
    ("log", "eth0: 0C-42-A1-DE-AD-BE up", ("0C-42-A1",)),
    ("log", "eth0: 0c42.a1de.adbe up", ("0c42.a1de",)),
    ("log", "eth0: MAC address 0c42a1deadbe up", ("0c42a1deadbe",)),
    ("log", "eth0: hwaddr=0c42a1deadbe up", ("0c42a1deadbe",)),
    ("cmdline", "BOOTIF=01-0c-42-a1-de-ad-be", ("0c-42-a1",)),
    ("log", "link enx0c42a1deadbe up", ("0c42a1deadbe",)),
    ("log", "mlx5_0: node guid 0c42:a103:00ec:ec0d", ("0c42:a103",)),
    ("log", "mlx5_0: port_guid: 0x0c42a10300ecec0d", ("0c42a10300ecec0d",)),
    ("log", "mlx5_0: GUID 0xb83fd2ff00ecec0d", ("b83fd2ff00ecec0d",)),
    ("log", "mlx5_0: 0x0c42a10300ecec0d joined", ("0c42a10300ecec0d",)),
    ("log", "mlx5_0: gid fe80:0000:0000:0000:0c42:a103:00ec:ec0d", ("0c42:a103",)),
    ("log", "ib0: hw 80:00:01:06:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:ec:ec:0d", ("0c:42:a1",)),
    ("log", "GPU-5ec2f213-af40-cb06-a2d9-42946bc64825 failed", ("5ec2f213",)),
    ("log", "disk uuid 5EC2F213-AF40-CB06-A2D9-42946BC64825", ("5EC2F213",)),
    ("env CUDA_VISIBLE_DEVICES", "GPU-77c2f213", ("77c2f213",)),
    ("log", "usb 1-1: SerialNumber: 4C530001230", ("4C530001230",)),
    ("log", "DMI: Serial Number: J1234567", ("J1234567",)),
    ("log", "chassis service tag: 7XK3Q92", ("7XK3Q92",)),
    ("log", "scsi naa.5000c500a1b2c3d4", ("5000c500a1b2c3d4",)),
    ("log", 'kubelet: pod "alice-train-0_research(3f2a8b1c)" container "x" is not running', ("alice-train", "research")),
    ("log", "mlx5_core 0000:3b:00.0: psid MT_0000000123 sn MT2043X12345", ("MT2043X12345",)),
)  # fmt: skip

# What a diagnosis needs and what only looks like something else.
HARMLESS = (
    "NVRM: Xid (PCI:0000:4c:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
    "pcieport 0000:4c:00.0: AER: Correctable error message received from 0000:4c:00.0",
    "nvidia 0000:4c:00.0: enabling device (0142 -> 0143)",
    "pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
    "driver version 535.104.05, CUDA version 12.4.1.2",
    "cuDNN 9.10.2.21 and NCCL 2.27.3",
    "libcurand-10.3.9.90 libcublas 12.4.5.8-1",
    "firmware version 28.39.1.2",
    "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
    "OFED-23.10.0.5 loaded",
    "BIOS version 1.4.0.1",
    "libnccl2=2.27.3-1+cuda12.9",
    "MLNX_OFED_LINUX-5.8-3.0.7.0",
    "NUMA nodes: 0-55,112-167",
    "cpulist 0-55,112-167",
    "faulted @ 0x7f81_d0ab1000. Fault is of type FAULT_PDE",
    "GSP_RM_CONTROL        0x0000000020802a02 0x0000000000000008 0x00062ed1a6b480ff",
    "DMAR: [DMA Read] fault addr 0xffffffffe0000000",
    "BAR 1: assigned [mem 0x380000000000-0x3807ffffffff 64bit pref]",
    "RIP: 0010:_nv017125rm+0x40/0x70 [nvidia]",
    "RAX: ffff888003001234 RBX: 0000000000000000",
    "build id 4f3c2b1a0d9e8f7c6b5a493827160594a3b2c1d0",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
    "sd 0:0:0:0: [sda] Sense Key : Medium Error [current]",
    "TOKENIZERS_PARALLELISM=false",
    "NCCL_IB_PKEY=0x8001",
    "NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 NCCL_IB_HCA=mlx5_0,mlx5_1:1",
    "NCCL_SOCKET_IFNAME=eth0,bond0",
    "NCCL_TOPO_FILE=/etc/nccl/topo.xml",
    "LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64:/usr/lib/x86_64-linux-gnu",
    "/opt/nvidia/nsight/libnvToolsExt.so.1",
    "iommu=pt intel_iommu=on iommu.passthrough=1 pcie_acs_override=downstream",
    "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80000040 flags=0x0020]",
    "console=ttyS0,115200 serial8250: ttyS0 at I/O 0x3f8",
    "knvlinkDiscoverPostRxDetLinks_GB100_REV2: Getting peer17 postRxDetLinkMask failed!",
    "Linux version 5.15.0-1053-nvidia #54-Ubuntu SMP Fri Apr 12 12:34:56 UTC 2024",
    "BOOT_IMAGE=/boot/vmlinuz-6.18.44-fc-v669 ro quiet",
    "listening on 127.0.0.1:9400 and 0.0.0.0:80",
    "see https://docs.nvidia.com/deploy/xid-errors/",
    "HOME_URL=https://www.debian.org/",
    "input: HDA NVidia as /devices/pci0000:c9/0000:c9:01.0/0000:ca:00.1/sound/card4",
    "caller os_map_kernel_space.part.7+0xda/0x120 [nvidia] mapping multiple BARs",
    "nvidia-persistenced: device 0000:01:00.0 - registered",
    "EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    "ACPI: \\_SB.PC00.RP01.PXSX: _OSC not supported",
    "mlx5_core 0000:5e:00.0 ens1f0np0: Link up",
    "knvlink: libcuda.so.1 nvidia-uvm.ko torch.distributed.run train.py run.sh",
    "NVRM: GPU7 _kgspBootGspRm: unexpected WPR2 already up",
    "Board: Supermicro SYS-420GP-TNR/X12DPG, BIOS 1.4b 07/11/2023",
    "mem_sleep_default=deep transparent_hugepage=always hugepages=1024",
    "pid='<unknown>', name=<unknown>, Ch 00000008",
)

OWN = "own-host7.example.com"


def clean(recording, salt=b"salt"):
    return redacted(recording, of_recording(recording, salt))


def recording(place, text):
    """A recording that holds this text there."""
    kind, _, name = place.partition(" ")
    host = facts(
        system=msgspec.structs.replace(SYSTEM, hostname=OWN),
        kernel_log=kernel_log(*(text.split("\n") if kind == "log" else ())),
        environment={name: text} if kind == "env" else {},
    )
    path = "/proc/cmdline" if kind == "cmdline" else kind
    return msgspec.structs.replace(written(host, ()), texts={path: text} if path.startswith("/") else {})


@pytest.mark.parametrize(("place", "text", "hidden"), PLANTED, ids=lambda it: it[:40] if isinstance(it, str) else "")
def test_planted_text_does_not_stay(place, text, hidden):
    after = clean(recording(place, text))

    assert all(one in text for one in hidden)
    assert [one for one in hidden if one.lower() in msgspec.json.encode(after).decode().lower()] == []
    assert sum(after.redactions.values()) > 1  # more than the host's own name


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_survives(text):
    assert Redaction([OWN], [text]).text(text) == text


UUID = "GPU-5ec2f213-af40-cb06-a2d9-42946bc64825"
SERIAL, CHASSIS = "1650123456789", "1820000000001"
RACK = RackPlace(chassis_serial=CHASSIS, slot=14, tray=4, host_id=1, module_id=2)
NO_RACK = "00000000-0000-0000-0000-000000000000"
GPU = msgspec.structs.replace(
    h100(0),
    uuid=UUID,
    health=Health(serial=SERIAL, rack=RACK),
    fabric=Fabric(state="completed", status=0, cluster_uuid=NO_RACK),
)
HOST = facts(
    system=msgspec.structs.replace(SYSTEM, hostname="node07.example.com"),
    driver=LOADED,
    pci=on_bus(GPU),
    nvml=reading(GPU),
    kernel_log=kernel_log(
        f"NVRM: GPU 0000:3b:00.0 {UUID} on node07 failed, serial {SERIAL}, peer 10.4.17.9",
        "eth0: MAC address 0c42a1deadbe, 0C-42-A1-DE-AD-BE, 0c42.a1de.adbe or 0c:42:a1:de:ad:be",
        "pci 0000:3b:00.0: [10de:2330] type 00, driver 580.95.05, mlx5 127.0.0.1",
    ),
    environment={
        "MASTER_ADDR": "10.4.17.9",
        "CUDA_VISIBLE_DEVICES": UUID[:12],
        "LD_LIBRARY_PATH": "/home/alice/lib:/opt/lib",
    },
)


def test_equal_things_stay_equal():
    """Also the beginning of a UUID, and an address in any form."""
    after = clean(written(HOST, ()))
    gpu, (first, second, _) = after.nvml.gpus[0], (line.text for line in after.kernel_log.lines)

    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
    assert gpu.uuid != UUID
    assert gpu.health.serial != SERIAL
    for one in (gpu.uuid, gpu.health.serial, after.system.hostname.partition(".")[0], after.environment["MASTER_ADDR"]):
        assert one in first
    assert gpu.uuid.startswith(after.environment["CUDA_VISIBLE_DEVICES"])
    assert len({re.sub("[^0-9a-f]", "", one.lower()) for one in re.findall(r"[0-9A-Fa-f:.-]{12,}", second)}) == 1
    assert after.redactions["hardware address"] == 1


def test_what_is_evaluated_stays():
    before = written(HOST, ())
    after = clean(before)

    assert (after.pci, after.driver, after.packages) == (before.pci, before.driver, before.packages)
    assert after.nvml.gpus[0].fabric == GPU.fabric
    assert after.kernel_log.lines[2] == before.kernel_log.lines[2]
    assert after.environment["LD_LIBRARY_PATH"].endswith(":/opt/lib")
    assert after.redacted


def test_two_recordings_share_no_hash():
    """A plain hash of an address or a serial number is found by trying them all."""
    assert clean(written(HOST, ()), None).system.hostname != clean(written(HOST, ()), None).system.hostname


@given(st.sampled_from(["completed", "open", "gpu", "proprietary", "switch", "PIX", "nvidia", "a.b", ""]) | st.text())
def test_a_host_may_be_called_anything(name):
    """Also by a word that means something in a recording."""
    before = encodable(
        written(msgspec.structs.replace(HOST, system=msgspec.structs.replace(SYSTEM, hostname=name)), ())
    )
    after = clean(before)

    assert (after.pci, after.driver, after.nvml.gpus[0].fabric) == (before.pci, before.driver, GPU.fabric)


@pytest.mark.parametrize("word", ["fallen", "off", "pid", "NVRM", "uncorrectable", "bus"])
def test_an_attempt_to_log_in_under_a_word_of_a_message_hides_no_error(word):
    """Anybody can try to log in as "fallen"; what the check reads stays."""
    error = "NVRM: Xid (PCI:0000:4c:00): 79, pid=1234, name=python3, GPU has fallen off the bus. Uncorrectable"
    after = clean(recording("log", f"sshd[1]: Invalid user {word} from 192.0.2.1 port 22\n{error}"))

    assert after.kernel_log.lines[1].text == error


def test_names_that_are_no_unicode_are_kept_as_far_as_they_are():
    host = facts(environment={"LD_LIBRARY_PATH": "/opt/\udcff/lib"})

    assert encodable(written(host, ())).environment == {"LD_LIBRARY_PATH": "/opt/?/lib"}


SHAPED = (GHP, JWT, "AKIAIOSFODNN7EXAMPLE", "glpat-Zx9_kLmNoPqRsTuVwXyZ", "xoxb-123456789012-abcdefABCDEF",
          "--token=Tok123abc", "password=Tok123abc", "'apikey': 'Tok123abc'", "10.77.3.99", "0c:42:a1:de:ad:be",
          "https://alice:Tok123abc@mirror/", "/home/alice", "alice@acme-corp.com", "gpu7.acme-corp.com")  # fmt: skip
LEAKS = re.compile(r"16C7e42F|c2lnbmF0|IOSFODNN|Zx9_kLm|abcdefABCDEF|Tok123abc|10\.77\.3\.99|0c:42:a1|alice|acme-corp")
AROUND = st.text(alphabet=" \t,;()[]{}<>\"'|:=\n", max_size=6).map(lambda edge: edge or " ")
NOISE = st.lists(st.sampled_from([*HARMLESS, "password", "--x", "key", "user", "Bearer", "https://x/", '"', "=", "{"]))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SHAPED), NOISE, AROUND.filter(lambda e: e[-1] not in ":="), NOISE, AROUND)
def test_surroundings_hide_no_secret(secret, before, edge, after, end):
    """Whatever stands around it, as long as something separates it from words."""
    text = "".join((" ".join(before), edge, secret, end if end[0] not in ":=" else " ", " ".join(after)))
    shown = Redaction([OWN], [text]).text(text)

    assert not LEAKS.search(shown), (text, shown)
