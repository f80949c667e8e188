"""gpucheck stack: exit statuses, stdout for the result, stderr for everything else."""

import json

import msgspec
import pytest
import yaml

from tests.stack.cli_words import lock_words, run, site
from tests.stack.hosts import host

__all__ = ["site"]  # a fixture is used by its name


def test_resolve_prints_the_set_as_json():
    result = run("resolve", "--gpu", "2xP100 PCIe", "--os", "ubuntu-22.04", "--format", "json")
    answer = json.loads(result.stdout)

    assert result.exit_code == 0
    assert answer["schema"] == "gpucheck.stack/1"
    assert {"driver", "cuda", "cudnn", "nccl", "torch", "tensorflow", "reasons"} <= set(answer)
    assert answer["driver"] | {"revision": None} == {
        "branch": "580", "version": "580.178.04", "kernel_module": "proprietary", "revision": None
    }  # fmt: skip
    assert {"version", "build", "python"} <= set(answer["torch"])


def test_resolve_prints_a_table_for_people():
    text = run("resolve", "--gpu", "8xH200", "--os", "ubuntu-24.04").stdout

    assert text.startswith("8 x NVIDIA H200 on ubuntu-24.04 (x86_64)\n")
    assert text.index("fabric manager") < text.index("\nwhy\n") < text.index("\nnot confirmed")
    assert max(map(len, text.splitlines())) <= 110


def test_requested_package_revision_is_shown():
    """Two revisions of one driver are two packages, so a change of it is a change."""
    words = ["--gpu", "T4", "--os", "ubuntu-22.04", "--want", "driver=580.95.05-0ubuntu1"]

    assert "580.95.05-0ubuntu1  open kernel modules" in run("resolve", *words).stdout


def test_an_impossible_spec_is_exit_2_with_conflicts():
    words = ["resolve", "--gpu", "P100 PCIe", "--os", "ubuntu-22.04", "--want", "cuda=13"]
    text, answer = run(*words), run(*words, "--format", "json")
    (conflict,) = json.loads(answer.stdout)["conflicts"]

    assert (text.exit_code, answer.exit_code) == (2, 2)
    assert {"between", "because", "source", "try"} <= set(conflict)
    assert conflict["change"] == {"cuda": "12.9.1"}
    assert text.stdout.startswith("CONFLICT  CUDA 13")
    assert "  fix   cuda 12.9.1 instead of cuda 13" in text.stdout


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--gpu", "P1000", "--os", "ubuntu-22.04"], 3, "Did you mean"),
        (["--gpu", "ffff", "--os", "ubuntu-22.04"], 3, "'ffff' is not known"),
        (["--gpu", "T4", "--os", "ubuntu-22.05"], 3, "Did you mean ubuntu-22.04"),
        (["--gpu", "T4", "--os", "ubuntu-22.04", "--arch", "mips"], 3, "x86_64, sbsa"),
        (["--gpu", "T4", "--os", "ubuntu-22.04", "--want", "cudaa=12"], 64, "Did you mean cuda?"),
        (["--gpu", "T4", "--os", "ubuntu-22.04", "--want", "cuda=none", "--want", "nccl=2.29.3"], 64, "cuda: none"),
        (["--gpu", "T4", "--os", "ubuntu-22.04", "--want", "cuda=new"], 64, "'new' is neither"),
        (["--gpu", "99xT4", "--os", "ubuntu-22.04"], 64, "1 to 64 GPUs"),
        (["--gpu", "T4", "--os", "amzn-2023"], 2, "not provision Amazon Linux 2023"),
        (["--gpu", "T4", "--os", "azurelinux-3.0"], 2, "repos/azl3, and use gpucheck verify"),
        (["--gpu", "T4", "--os", "sles-15.6"], 2, "SUSE Linux Enterprise Server 15"),
        (["--gpu", "T4", "--os", "suse-16"], 2, "repos/suse16"),
        (["--gpu", "T4", "--os", "fedora-44"], 2, "repos/fedora44"),
        (["--gpu", "T4", "--os", "opensuse-leap-15.6"], 2, "repos/opensuse15"),
        (["--gpu", "T4", "--os", "kylin-V11"], 2, "KylinOS V11"),
    ],
)
def test_bad_input_is_one_message(words, status, says):
    result = run("resolve", *words)

    assert (result.exit_code, result.stdout) == (status, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "want", ["cuda=99", "torch=99", "driver=999", "nccl=9.9", "cudnn=99", "container_toolkit=9", "dcgm=3.3"]
)
def test_a_version_that_the_tables_do_not_know_is_unknown_and_not_impossible(want):
    """Exit 3, with one that is known; an index of tomorrow may have it."""
    for gpu in ("H100 SXM", "P100 PCIe"):
        result = run("resolve", "--gpu", gpu, "--os", "ubuntu-24.04", "--want", want, "--format", "json")
        (conflict,) = json.loads(result.stdout)["conflicts"]

        assert result.exit_code == 3
        assert "is known" in conflict["because"]
        assert conflict["change"]


def test_a_version_that_exists_for_others_is_impossible():
    """Known, and ruled out by a fact: TensorFlow for aarch64, NCCL for another CUDA major."""
    grace = run("resolve", "--gpu", "GB200", "--os", "ubuntu-24.04", "--want", "tensorflow=2.21")
    major = run("resolve", "--gpu", "P100 PCIe", "--os", "ubuntu-24.04", "--want", "nccl=2.32.3")

    assert (grace.exit_code, major.exit_code) == (2, 2)


def test_a_preference_moves_the_driver_and_what_goes_with_it():
    branches = {}
    for prefer in ("longest-supported", "production", "newest"):
        words = ["--gpu", "H100 SXM", "--os", "ubuntu-24.04", "--prefer", prefer, "--format", "json"]
        branches[prefer] = int(json.loads(run("resolve", *words).stdout)["driver"]["branch"])

    assert branches == {"longest-supported": 620, "production": 595, "newest": 620}


def test_resolve_takes_a_specification_and_what_is_stated_beside_it(tmp_path):
    """Settings that --want has no word for, and the line that installs the wheel from PyTorch's index."""
    (tmp_path / "stack.yml").write_text("driver: 580\ncuda: '12.9'\ntorch_origin: any\n")
    words = ["--gpu", "8xV100", "--os", "rocky-9", "--spec", tmp_path / "stack.yml"]
    own, stated = run("resolve", *words).stdout, run("resolve", *words, "--want", "cuda=12.8").stdout

    assert "CUDA toolkit       12.9.1\n" in own
    assert "CUDA toolkit       12.8.1\n" in stated
    assert "  pip install torch==2.14.1+cu126 --index-url https://download.pytorch.org/whl/cu126\n" in own
    assert "  pip install 'tensorflow[and-cuda]==2.21.0' nvidia-cudnn-cu12==9.10.2.21\n" in own
    assert "  pip install torch==2.15.0\n" in run("resolve", "--gpu", "H100 PCIe", "--os", "rocky-9").stdout


def test_plan_of_a_described_host_is_that_of_a_real_one_without_its_kernel(site):
    run(*lock_words(site))
    words = ["--format", "json"]
    real = json.loads(run("plan", "--lock", site / "stack.lock.yml", "--host", "lab-dnf", *words).stdout)
    described = ["plan", "--spec", site / "stack.yml", "--gpu", "8xH100 SXM", "--os", "rocky-9", "--nvswitches", "4"]
    made = json.loads(run(*described, *words).stdout)

    other = {key for key in real if real[key] != made[key]}
    assert other == {"hosts", "host", "headers"}
    assert (made["hosts"], made["headers"]) == ([], [])
    assert "kernel headers\n  those of the host's kernel\n" in run(*described).stdout
    kernel = json.loads((site / "lab-dnf.json").read_text())["kernel"]
    assert json.loads(run(*described, "--kernel", kernel, *words).stdout)["headers"] == real["headers"]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--gpu", "H100 PCIe"], 64, "--gpu MODEL and --os SYSTEM"),
        (["--gpu", "T4", "--os", "rocky-9", "--host", "x"], 64, "exactly one of"),
        (["--gpu", "T5", "--os", "rocky-9"], 3, "Did you mean"),
    ],
)
def test_a_described_host_that_is_incomplete_or_unknown_is_one_message(words, status, says):
    result = run("plan", *words)

    assert (result.exit_code, result.stdout) == (status, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("gpus", "system", "spec"),
    [
        # Names of the packages, the directory, the key: each was found by the plan alone.
        ("h100-pcie-x2", "rocky-9", "driver: 545\n"),
        ("h100-pcie-x2", "centos-7", "driver: 550\ncuda: '12.4'\nend_of_life_os: allow\n"),
        ("t4-x1", "ubuntu-24.04", "repositories: {nvidia-cuda: {url: https://m/, key_url: https://m/key}}\n"),
        ("t4-x1", "ubuntu-24.04", "driver: 580\ncuda: '12.9'\ncudnn: 8.9.7.29\n"),
    ],
)
def test_resolve_and_lock_refuse_what_plan_refuses_with_the_same_sentence(tmp_path, gpus, system, spec):
    (tmp_path / "stack.yml").write_text(spec)
    one = host(system, gpus)
    (tmp_path / "facts.json").write_bytes(msgspec.json.encode(one))
    files = ["--spec", tmp_path / "stack.yml", "--facts", tmp_path / "facts.json", "-o", tmp_path / "lock.yml"]
    locked = run("lock", *files)
    models = [word for gpu in one.gpus for word in ("--gpu", gpu.device_id)]
    described = [*models, "--os", system, "--spec", tmp_path / "stack.yml"]
    resolved, planned = run("resolve", *described), run("plan", *described)

    assert (locked.exit_code, resolved.exit_code, planned.exit_code) == (2, 2, 2)
    sentence = planned.stdout.splitlines()[0].removeprefix("CONFLICT  ")
    assert f"UNSUPPORTED node01  {sentence}" in locked.stderr
    assert f"CONFLICT  {sentence}" in resolved.stdout
    assert run("plan", "--lock", tmp_path / "lock.yml", "--host", "node01").exit_code == 2


def test_lock_warns_of_a_kernel_that_the_driver_was_not_seen_to_build_on(tmp_path, site):
    (site / "lab-apt.json").write_bytes(
        msgspec.json.encode(host("ubuntu-22.04", "p100-pcie-x2", "lab-apt", kernel="7.2.1-070201-generic"))
    )

    assert (
        "WARNING ubuntu-22.04-x86_64-15f8x2: kernel 7.2.1-070201-generic: driver branch 580"
        in run(*lock_words(site)).stderr
    )


def test_a_damaged_table_is_one_message_with_its_line(monkeypatch, tmp_path):
    from gpucheck.knowledge import _load

    for path in _load.FOLDER.glob("*.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    text = (tmp_path / "cuda.yml").read_text().replace('version: "12.0.0"', "version: [12]", 1)
    (tmp_path / "cuda.yml").write_text(text)
    monkeypatch.setattr(_load, "FOLDER", tmp_path)
    monkeypatch.setattr(_load, "_parsed", {})
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "version: [12]" in row)
    result = run("resolve", "--gpu", "H100 SXM", "--os", "ubuntu-24.04")

    assert (result.exit_code, result.stdout) == (3, "")
    assert f"cuda.yml:{line}: toolkits[3].version: Expected `str`" in result.stderr


def test_lock_writes_once_and_then_leaves_the_file_alone(site):
    first = run(*lock_words(site))
    path = site / "stack.lock.yml"
    before = path.stat().st_mtime_ns
    second = run(*lock_words(site))

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "rocky-9-x86_64-2330x8: new, 1 host, driver 620.70.06 open" in first.stderr
    assert "unchanged" in second.stderr
    assert path.stat().st_mtime_ns == before


def test_lock_reports_changed_versions(site):
    run(*lock_words(site))
    (site / "stack.yml").write_text("cuda: '12.9'\ncontainer_toolkit: none\n")
    result = run(*lock_words(site))

    assert "CUDA toolkit 13.5.0 -> 12.9.1" in result.stderr
    assert "ubuntu-22.04-x86_64-15f8x2: container toolkit 1.18.1 -> none" in result.stderr


def test_a_refused_host_is_named_and_the_others_are_locked(site):
    bare = msgspec.structs.replace(host("rocky-9", "t4-x1", "login"), gpus=())
    (site / "login.json").write_bytes(msgspec.json.encode(bare))
    result = run(*lock_words(site, "--facts", site / "login.json"))

    assert result.exit_code == 2
    assert "UNSUPPORTED login  no NVIDIA GPU found on login" in result.stderr
    assert list(yaml.safe_load((site / "stack.lock.yml").read_text())["groups"]) == [
        "rocky-9-x86_64-2330x8",
        "ubuntu-22.04-x86_64-15f8x2",
    ]
    assert run("plan", "--lock", site / "stack.lock.yml", "--host", "login").exit_code == 2
    assert run("plan", "--lock", site / "stack.lock.yml", "--host", "lab-apt").exit_code == 0


def test_an_unknown_gpu_on_a_host_is_exit_3(site):
    odd = host("rocky-9", "t4-x1", "odd")
    odd = msgspec.structs.replace(odd, gpus=(msgspec.structs.replace(odd.gpus[0], device_id="2cff"),))
    (site / "odd.json").write_bytes(msgspec.json.encode(odd))

    assert run(*lock_words(site, "--facts", site / "odd.json")).exit_code == 3
    assert run("plan", "--lock", site / "stack.lock.yml", "--host", "odd").exit_code == 3


def test_plan_prints_the_contract(site):
    run(*lock_words(site))
    result = run("plan", "--lock", site / "stack.lock.yml", "--host", "lab-dnf", "--format", "json")
    answer = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (answer["schema"], answer["group"], answer["hosts"]) == (
        "gpucheck.plan/1", "rocky-9-x86_64-2330x8", ["lab-dnf"]
    )  # fmt: skip
    assert answer["module_stream"] == {"module": "nvidia-driver", "stream": "620-open"}
    assert "nvidia-driver:620-open" in run("plan", "--lock", site / "stack.lock.yml", "--host", "lab-dnf").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "nobody"], "no host 'nobody'"),
        ([], "exactly one of --host"),
        (["--host", "a", "--group", "b"], "exactly one of"),
    ],
)
def test_plan_without_exactly_one_host_or_group_is_a_usage_error(site, words, says):
    run(*lock_words(site))
    result = run("plan", "--lock", site / "stack.lock.yml", *words)

    assert result.exit_code == 64
    assert says in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("stack.yml", "cudn: auto\n", "stack.yml:1: cudn: no such key. Did you mean cudnn?"),
        ("stack.lock.yml", "groups: 5\n", "stack.lock.yml:1: "),
    ],
)
def test_a_damaged_file_is_exit_64_with_its_place(site, name, text, says):
    (site / name).write_text(text)
    before = sorted(path.name for path in site.iterdir())
    result = run(*lock_words(site))

    assert result.exit_code == 64
    assert says in result.stderr
    assert sorted(path.name for path in site.iterdir()) == before


def test_damaged_facts_refuse_one_host_and_no_other(site):
    (site / "lab-apt.json").write_text("{")
    result = run(*lock_words(site))

    assert result.exit_code == 3
    assert "the facts of lab-apt cannot be read" in " ".join(result.stderr.split())
    assert "lab-dnf" in (site / "stack.lock.yml").read_text().partition("refused:")[0]


def test_a_lock_that_cannot_be_written_leaves_nothing_behind(site):
    (site / "file").write_text("")
    words = lock_words(site)
    words[words.index("-o") + 1] = site / "file" / "stack.lock.yml"
    result = run(*words)

    assert result.exit_code == 64
    assert "Traceback" not in result.stderr


def test_rules_prints_the_page(tmp_path):
    page = tmp_path / "rules.md"

    assert run("rules", "-o", page).exit_code == 0
    assert page.read_text() == run("rules").stdout
