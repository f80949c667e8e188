"""gpucheck stack resolve, lock and plan: exit statuses, stdout for the result, stderr for everything else."""

import json

import msgspec
import pytest
import yaml

from tests.stack.cli_words import lock_words, run, site
from tests.stack.hosts import host

__all__ = ["site"]  # a fixture is used by its name


def resolved(*words):
    """What resolve prints as JSON."""
    return json.loads(run("resolve", *words, "--format", "json").stdout)


def facts(site, name, one):
    """Put the facts of a host into a file; returns the words that name it."""
    (site / f"{name}.json").write_bytes(msgspec.json.encode(one))
    return ["--facts", site / f"{name}.json"]


def test_resolve_prints_the_set_as_json_and_as_a_table():
    answer = resolved("--gpu", "2xP100 PCIe", "--os", "ubuntu-22.04")
    text = run("resolve", "--gpu", "8xH200", "--os", "ubuntu-24.04").stdout

    assert answer["schema"] == "gpucheck.stack/1"
    assert {"driver", "cuda", "cudnn", "nccl", "torch", "tensorflow", "reasons"} <= set(answer)
    assert answer["driver"] == {
        "branch": "580", "version": "580.178.04", "kernel_module": "proprietary", "revision": None
    }  # fmt: skip
    assert {"version", "build", "python"} <= set(answer["torch"])
    assert text.startswith("8 x NVIDIA H200 on ubuntu-24.04 (x86_64)\n")
    assert text.index("fabric manager") < text.index("\nwhy\n") < text.index("\nnot confirmed")
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("13", 2, "CUDA 13.5.0 has no code generator for"),
        # A version that no table knows: an index of tomorrow may have it.
        ("99", 3, "no CUDA toolkit 99 is known"),
    ],
)
def test_an_impossible_or_unknown_version_is_a_conflict_with_what_helps(version, status, said):
    words = ["resolve", "--gpu", "P100 PCIe", "--os", "ubuntu-22.04", "--want", f"cuda={version}"]
    text, answer = run(*words), run(*words, "--format", "json")
    (conflict,) = json.loads(answer.stdout)["conflicts"]

    assert (text.exit_code, answer.exit_code) == (status, status)
    assert {"between", "because", "source", "try"} <= set(conflict)
    assert conflict["change"] == {"cuda": "12.9.1"}
    assert text.stdout.startswith(f"CONFLICT  {said}")
    assert f"  fix   cuda 12.9.1 instead of cuda {version}" in text.stdout


T4 = ("resolve", "--gpu", "T4", "--os")
UBUNTU = (*T4, "ubuntu-22.04")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("resolve", "--gpu", "P1000", "--os", "ubuntu-22.04"), 3, "Did you mean"),
        (("resolve", "--gpu", "ffff", "--os", "ubuntu-22.04"), 3, "'ffff' is not known"),
        ((*T4, "ubuntu-22.05"), 3, "Did you mean ubuntu-22.04"),
        ((*UBUNTU, "--arch", "mips"), 3, "x86_64, sbsa"),
        ((*UBUNTU, "--want", "cudaa=12"), 64, "Did you mean cuda?"),
        ((*UBUNTU, "--want", "cuda=none", "--want", "nccl=2.29.3"), 64, "cuda: none"),
        ((*UBUNTU, "--want", "cuda=new"), 64, "'new' is neither"),
        (("resolve", "--gpu", "99xT4", "--os", "ubuntu-22.04"), 64, "1 to 64 GPUs"),
        ((*UBUNTU, "--simulate", "p100-pcie-x2"), 64, "--gpu and --os cannot be combined with --simulate"),
        ((*T4, "amzn-2023"), 2, "not provision Amazon Linux 2023"),
        ((*T4, "azurelinux-3.0"), 2, "repos/azl3, and use gpucheck verify"),
        ((*T4, "suse-16"), 2, "repos/suse16"),
        (("plan", "--gpu", "H100 PCIe"), 64, "--gpu MODEL and --os SYSTEM"),
        (("plan", "--gpu", "T4", "--os", "rocky-9", "--host", "x"), 64, "exactly one of"),
        (("plan", "--gpu", "T5", "--os", "rocky-9"), 3, "Did you mean"),
        (("plan",), 64, "exactly one of --host"),
        (("plan", "--host", "a", "--group", "b"), 64, "exactly one of"),
        (("plan", "--all-hosts", "plans", "--host", "a"), 64, "exactly one of"),
        (("plan", "--host", "a", "--bundle", "."), 64, "--bundle requires --all-hosts DIR"),
        (("plan", "--lock", "stack.lock.yml", "--host", "nobody"), 64, "no host 'nobody'"),
        (("check", "--host", "a"), 64, "--host requires --lock"),
    ],
)
def test_wrong_input_is_one_message(site, monkeypatch, words, status, says):
    monkeypatch.chdir(site)
    run(*lock_words(site))
    result = run(*words)

    assert (result.exit_code, result.stdout) == (status, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_preference_moves_the_driver():
    words = ["--gpu", "H100 SXM", "--os", "ubuntu-24.04", "--prefer"]
    branches = {one: resolved(*words, one)["driver"]["branch"] for one in ("longest-supported", "production", "newest")}

    assert branches == {"longest-supported": "620", "production": "595", "newest": "620"}


def test_resolve_takes_a_specification_and_what_is_stated_beside_it(tmp_path):
    """Settings that --want has no word for, and the line that installs the wheel from PyTorch's index."""
    (tmp_path / "stack.yml").write_text("driver: 580\ncuda: '12.9'\ntorch_origin: any\n")
    words = ["--gpu", "8xV100", "--os", "rocky-9", "--spec", tmp_path / "stack.yml"]
    own = run("resolve", *words).stdout

    assert "CUDA toolkit       12.9.1\n" in own
    assert resolved(*words, "--want", "cuda=12.8")["cuda"] == "12.8.1"
    assert "  pip install torch==2.14.1+cu126 --index-url https://download.pytorch.org/whl/cu126\n" in own
    assert "  pip install 'tensorflow[and-cuda]==2.21.0' nvidia-cudnn-cu12==9.10.2.21\n" in own


def test_plan_of_a_described_host_is_that_of_a_real_one_without_its_kernel(site):
    run(*lock_words(site))
    words = ["--format", "json"]
    real = json.loads(run("plan", "--lock", site / "stack.lock.yml", "--host", "lab-dnf", *words).stdout)
    described = ["plan", "--spec", site / "stack.yml", "--gpu", "8xH100 SXM", "--os", "rocky-9"]
    made = json.loads(run(*described, *words).stdout)

    assert (real["schema"], real["group"], real["hosts"]) == (
        "gpucheck.plan/1", "rocky-9-x86_64-2330x8", ["lab-dnf"]
    )  # fmt: skip
    assert "assumed to be an NVSwitch board" in str(made["stack"].pop("reasons"))
    del real["stack"]["reasons"]
    assert {key for key in real if real[key] != made[key]} == {"hosts", "host", "headers"}
    assert (made["hosts"], made["headers"]) == ([], [])
    assert "kernel headers\n  those of the host's kernel\n" in run(*described).stdout
    kernel = json.loads((site / "lab-dnf.json").read_text())["kernel"]
    assert json.loads(run(*described, "--kernel", kernel, *words).stdout)["headers"] == real["headers"]


@pytest.mark.parametrize(
    ("gpus", "system", "spec"),
    [
        # Names of the packages, the directory, the key: each was found by the plan alone.
        ("h100-pcie-x2", "rocky-9", "driver: 545\n"),
        ("h100-pcie-x2", "centos-7", "driver: 550\ncuda: '12.4'\nend_of_life_os: allow\n"),
        ("t4-x1", "ubuntu-24.04", "repositories: {nvidia-cuda: {url: https://m/, key_url: https://m/key}}\n"),
    ],
)
def test_resolve_and_lock_refuse_what_plan_refuses_with_the_same_sentence(tmp_path, gpus, system, spec):
    (tmp_path / "stack.yml").write_text(spec)
    one = host(system, gpus)
    files = ["--spec", tmp_path / "stack.yml", *facts(tmp_path, "facts", one), "-o", tmp_path / "lock.yml"]
    locked = run("lock", *files)
    models = [word for gpu in one.gpus for word in ("--gpu", gpu.device_id)]
    described = [*models, "--os", system, "--spec", tmp_path / "stack.yml"]
    answers = [run("resolve", *described), run("plan", *described)]

    assert (locked.exit_code, *(one.exit_code for one in answers)) == (2, 2, 2)
    (sentence, again) = (one.stdout.splitlines()[0].removeprefix("CONFLICT  ") for one in answers)
    assert sentence == again
    assert f"UNSUPPORTED node01  {sentence}" in locked.stderr
    assert run("plan", "--lock", tmp_path / "lock.yml", "--host", "node01").exit_code == 2


def test_lock_writes_once_warns_of_kernels_and_prints_what_changed(site):
    path = site / "stack.lock.yml"
    words = lock_words(site)
    odd = facts(site, "lab-apt", host("ubuntu-22.04", "p100-pcie-x2", "lab-apt", kernel="7.2.1-070201-generic"))
    first, before = run(*words), path.stat().st_mtime_ns
    second = run(*words)
    (site / "stack.yml").write_text("cuda: '12.9'\ncontainer_toolkit: none\n")
    unchanged = path.stat().st_mtime_ns == before
    third = run(*words)

    assert odd[1].exists()
    assert (first.exit_code, second.exit_code, unchanged) == (0, 0, True)
    assert "rocky-9-x86_64-2330x8: new, 1 host, driver 620.70.06 open" in first.stderr
    assert "WARNING ubuntu-22.04-x86_64-15f8x2: kernel 7.2.1-070201-generic: driver branch 580" in first.stderr
    assert "unchanged" in second.stderr
    assert "CUDA toolkit 13.5.0 -> 12.9.1" in third.stderr
    assert "ubuntu-22.04-x86_64-15f8x2: container toolkit 1.18.1 -> none" in third.stderr


def test_lock_keeps_an_older_set_and_upgrade_prints_what_moves(site):
    path = site / "stack.lock.yml"
    run(*lock_words(site))
    path.write_text(path.read_text().replace("620.70.06", "620.60.01"))
    before = path.read_bytes()

    assert run(*lock_words(site)).exit_code == 0
    assert path.read_bytes() == before
    assert "rocky-9-x86_64-2330x8: fabric manager 620.60.01 -> 620.70.06" in run(*lock_words(site, "--upgrade")).stderr
    path.write_text("damaged")
    assert run(*lock_words(site)).exit_code == 64
    assert run(*lock_words(site, "--upgrade")).exit_code == 0


def test_one_call_locks_all_but_unsupported_hosts_and_writes_a_plan_or_the_conflicts_of_each(site):
    """What make provision asks; the exit status is the lock's own."""
    vm = facts(site, "vm01", host("ubuntu-22.04", "p100-pcie-x2", "vm01", vgpu_guest=True))
    result = run(*lock_words(site, *vm, "--all-hosts", site / "plans"))
    written = {path.stem: json.loads(path.read_text()) for path in (site / "plans").glob("*.json")}

    assert result.exit_code == 2
    assert "UNSUPPORTED vm01  the driver of a vGPU guest" in result.stderr
    assert "rocky-9-x86_64-2330x8 (1 host): driver 620" in result.stdout
    count = len(written["lab-dnf"]["unconfirmed"])
    assert f"{count} unconfirmed (gpucheck stack plan --group rocky-9-x86_64-2330x8)" in result.stdout
    assert (set(written), written["lab-dnf"]["hosts"]) == ({"lab-apt", "lab-dnf", "vm01"}, ["lab-dnf"])
    assert "hypervisor" in written["vm01"]["conflicts"][0]["try"]
    groups = yaml.safe_load((site / "stack.lock.yml").read_text())["groups"]
    assert list(groups) == ["rocky-9-x86_64-2330x8", "ubuntu-22.04-x86_64-15f8x2"]


def test_damaged_facts_refuse_one_host_and_no_other(site):
    (site / "lab-apt.json").write_text("{")
    result = run(*lock_words(site))

    assert result.exit_code == 3
    assert "the facts of lab-apt cannot be read" in " ".join(result.stderr.split())
    assert "lab-dnf" in (site / "stack.lock.yml").read_text().partition("refused:")[0]
