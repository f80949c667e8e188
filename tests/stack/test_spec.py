"""stack.yml: a mistake is one message with file, line and key."""

from pathlib import Path

import pytest

from gpucheck.knowledge.tables import operating_systems
from gpucheck.stack import SpecError, StackSpec, parse_spec, read_spec, wants

UBUNTU = "source: ubuntu\ndriver: 580.95.05-0ubuntu0.24.04.1\n"
# text: the message after the file name, or its start.
MISTAKES = {
    "driver: auto\ncudn: auto\n": "2: cudn: no such key. Did you mean cudnn?",
    "driver: auto\n\ncuda: newest\n": "3: cuda: 'newest' is neither",
    "driver: none\n": "1: driver: 'none' is not possible",
    "cuda: auto\ncuda: none\n": "2: cuda: stated twice",
    "cuda: [12, 13]\n": "1: cuda: must be a single value",
    "- cuda\n": "1: this must be 'key: value' lines",
    "cuda: 'auto\n": "2: not YAML",
    "cuda:\n": "1: cuda: is empty",
    "schema: gpucheck.spec/9\n": "1: schema: gpucheck.spec/9 is not gpucheck.spec/1",
    "kernel_module: opne\n": "1: kernel_module: opne is not possible. Did you mean open?",
    "cuda: auto\nkernel_lock: held\n": "2: kernel_lock: held is not possible. Did you mean hold?",
    # Contradictions.
    "cuda: none\n\nnccl: 2.29.3\n": "3: nccl: contradicts line 1: cuda: none",
    "cudnn: 9.10\ncuda: none\n": "1: cudnn: contradicts line 2: cuda: none",
    "cuda: 13.0\nnccl: 2.29.3+cuda12.9\n": "2: nccl: contradicts line 1: cuda is 13.0",
    "source: debian\nrepositories: managed\n": "2: repositories: contradicts line 1: source: debian adds components",
    f"{UBUNTU}repositories: managed\n": "3: repositories: contradicts line 1: source: ubuntu adds components",
    "driver: keep\nkernel_module: open\n": "2: kernel_module: contradicts line 1: it belongs to the driver",
    "driver: keep\nmodule_options: {NVreg_A: 0}\n": "2: module_options: contradicts line 1: it belongs to the driver",
    "driver: keep\nmok: {key: /a, certificate: /b}\n": "2: mok: contradicts line 1: it belongs to the driver",
    "driver: keep\nimex: slurm\n": "2: imex: contradicts line 1: it belongs to the driver",
    "driver: keep\ntuning: {iommu: off}\n": "2: tuning: contradicts line 1: iommu changes the kernel's arguments",
    "driver: keep\nsource: debian\n": "2: source: contradicts line 1: debian is where the driver comes from",
    "cuda: keep\n": "1: cuda: only a driver can be kept",
    # In silence the default would hold: NVIDIA's address and key instead of a mirror's, for example.
    "drivers: x\n": "1: drivers: no such key. Did you mean driver? Known here: driver",
    "imex:\n  service_: x\n": "2: imex.service_: no such key. Did you mean service? Known here: service, nodes",
    "mok:\n  xkey: x\n": "2: mok.xkey: no such key. Did you mean key? Known here: key, certificate",
    "repositories:\n  epel:\n    key-url: x\n": "3: repositories.epel.key-url: no such key. Did you mean key_url?",
    # Repositories.
    "repositories: {managed: {}}\n": "1: repositories.managed: must be the only value",
    "repositories:\n  nvidia-cuda: none\n": "2: repositories.nvidia-cuda: this must be 'key: value' lines",
    "repositories:\n  nvidia-cuda:\n    ulr: x\n": "3: repositories.nvidia-cuda.ulr: no such key. Did you",
    "repositories:\n  nvidia-cudaa: {url: https://mirror/, key_fingerprint: x}\n": (
        "2: repositories.nvidia-cudaa: no such key. Did you mean nvidia-cuda? Known here: nvidia-cuda, nvidia-container"
    ),
    "repositories: {docker: {url: https://mirror/}}\n": (
        "1: repositories.docker: no such key. Known here: nvidia-cuda, nvidia-container-toolkit, epel"
    ),
    # An empty one, such as of a variable without a value, was the public address.
    "repositories: {nvidia-cuda: {url: ''}}\n": "1: repositories.nvidia-cuda.url: '' is not an address such as https",
    "repositories: {epel: {key_url: none}}\n": "1: repositories.epel.key_url: 'none' is not an address",
    "repositories: {nvidia-cuda: {url: mirror.example/cuda}}\n": (
        "1: repositories.nvidia-cuda.url: 'mirror.example/cuda' is not an address"
    ),
    "repositories: {nvidia-cuda: {url: 'https://m/{Distro}/'}}\n": (
        "1: repositories.nvidia-cuda.url: 'https://m/{Distro}/' is not an address"
    ),
    "repositories:\n  nvidia-cuda: {url: none}\n": "2: repositories.nvidia-cuda: only epel can be none",
    "repositories: {nvidia-cuda: {key_fingerprint: 3BF863CC}}\n": (
        "1: repositories.nvidia-cuda.key_fingerprint: '3BF863CC' is not a fingerprint of 40 or 64 hex digits, or sha"
    ),
    "repositories: {nvidia-cuda: {signed: all}}\n": (
        "1: repositories.nvidia-cuda.signed: all is not possible. Known here: packages, metadata, both"
    ),
    # Settings.
    "imex: systemd\n": "1: imex: service systemd needs nodes",
    "imex: {service: slurm, nodes: [10.0.0.1]}\n": "1: imex: nodes are for service systemd",
    "imex: {service: systemd, nodes: [n1]}\n": "1: imex.nodes[0]: 'n1' is not an IP address",
    "imex: on\n": "1: imex: on is not possible",
    # DKMS reads its settings with a shell.
    "mok: {key: '/m;reboot', certificate: /m.der}\n": "1: mok.key: '/m;reboot' is not an absolute path",
    "mok: {key: mok.key, certificate: /m.der}\n": "1: mok.key: 'mok.key' is not an absolute path",
    "mok: {key: /etc/site/mok.key}\n": "1: mok: certificate is missing",
    "mok: yes\n": "1: mok: yes is not possible",
    "module_options: {RestrictProfiling: 0}\n": "1: module_options.RestrictProfiling: is not an nvidia module option",
    "module_options:\n  NVreg_A: 'x y'\n": "2: module_options.NVreg_A: 'x y' is not valid in a modprobe file",
    "module_options: {NVreg_A: '1\\ninstall nvidia /bin/false'}\n": (
        r"1: module_options.NVreg_A: '1\\ninstall nvidia /bin/false' is not valid in a modprobe file"
    ),
    "module_options: some\n": "1: module_options: some is not possible",
    "driver: 580\ndriver_extra: [vidoe]\n": (
        "2: driver_extra[0]: 'vidoe' is not a driver component. Did you mean video?"
    ),
    "driver_extra: video\n": "1: driver_extra: video is not possible",
    "driver_extra: {video: true}\n": "1: driver_extra: must be a list",
    "tuning: yes\n": "1: tuning: yes is not possible",
    "tuning:\n  governer: performance\n": "2: tuning.governer: no such key. Did you mean governor?",
    "tuning:\n  nofile: many\n": "2: tuning.nofile: many is not a whole number",
    "tuning:\n  numa_balancing: on\n": "2: tuning.numa_balancing: on is not possible",
    "tuning: {iommu: pt}\n": "1: tuning.iommu: pt is not possible",
    "tuning:\n  sysctl: {../../etc.passwd: 3}\n": "2: tuning.sysctl.../../etc.passwd: is not a kernel setting",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_mistake_names_file_line_and_key(text, message):
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "stack.yml")

    assert str(caught.value).startswith(f"stack.yml:{message}")


@pytest.mark.parametrize("system", [row for row in operating_systems().systems if row.repository])
def test_every_repository_of_a_plan_can_be_stated(system):
    names = {"nvidia-cuda"}
    if system.family == "redhat":
        names |= {f"cuda-{system.repository}-{arch}" for arch in ("x86_64", "sbsa")}
    for name in names | {"epel", "nvidia-container-toolkit"}:
        assert parse_spec(f"repositories: {{{name}: {{url: 'https://m/'}}}}\n", "s").repositories


def test_numbers_stay_as_they_were_written():
    """As a YAML number 13.10 would become 13.1."""
    assert parse_spec("schema: gpucheck.spec/1\ncuda: 13.10\ndriver: 580\n", "s").cuda == "13.10"


def test_the_projects_own_spec_is_all_auto():
    assert read_spec(Path("stack.yml")) == StackSpec()


def test_empty_file_requests_nothing_in_particular():
    assert parse_spec("", "s") == parse_spec("# nothing\n", "s") == StackSpec()


def test_wants_understand_versions_and_ranges():
    spec = wants(("cuda=12.9", "torch>=2.7,<2.10", "container-toolkit==1.18.1", "kernel-module=open"))

    assert (spec.cuda, spec.torch, spec.container_toolkit) == ("12.9", ">=2.7,<2.10", "1.18.1")
    assert spec.kernel_module == "open"


def test_a_component_that_is_wanted_twice_is_refused():
    """As a key of the file; the last one held in silence."""
    with pytest.raises(SpecError, match=r"--want cuda=13.0: cuda is stated twice, as 12.9 before; keep one"):
        wants(("cuda=12.9", "cuda=13.0"))


@pytest.mark.parametrize(
    "url", ["file:/srv/mirror", "https://user:p%40ss@m:8443/cuda/{distro}/{arch}/", "mirror+http://m/x"]
)
def test_every_address_that_a_package_manager_reads_can_be_stated(url):
    assert parse_spec(f"repositories: {{nvidia-cuda: {{url: '{url}'}}}}\n", "s").repositories["nvidia-cuda"].url == url


def test_wants_that_rule_each_other_out_are_refused():
    """As in the file; equal majors and builds without a stated toolkit are no contradiction."""
    with pytest.raises(SpecError, match=r"--want nccl=2.29.3\+cuda12.9: cuda is 13"):
        wants(("nccl=2.29.3+cuda12.9", "cuda=13"))

    assert wants(("nccl=2.29.3+cuda12.9", "cuda=12.8")).cuda == "12.8"
    assert wants(("nccl=2.29.3+cuda12.9",)).cuda == "auto"


@pytest.mark.parametrize("item", ["cudaa=12", "cuda", "cuda=", "cuda=x", "=1"])
def test_a_want_that_cannot_be_understood_is_refused(item):
    with pytest.raises(SpecError, match="--want"):
        wants((item,))
