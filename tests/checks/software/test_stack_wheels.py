"""The framework wheels of the stack check: what they were built for, against the GPUs, the driver and each other."""

from gpucheck.checks.software import stack
from gpucheck.checks.software._wheels import Imported, more, read_wheels
from gpucheck.model import DriverState, NvmlReading, Verdict
from tests.fakes import NO_DRIVER, facts
from tests.machines import LOADED, h100, on_bus, p100, reading

SITE = "{purelib}"


def wheel_findings(python, *gpus, files=None, imported=None, driver=LOADED, nvml=NO_DRIVER):
    """Findings about wheels only: there is no plan on this host."""
    host = facts(python=python, pci=on_bus(*gpus), driver=driver, files=files, nvml=nvml)
    return [f for f in stack.evaluate(host, imported=imported) if f.verdict is not Verdict.SKIP]


def worst_cause(findings):
    return [(f.verdict, f.cause, f.subject) for f in findings if f.verdict is not Verdict.PASS]


def test_the_plain_wheel_of_torch_holds_no_code_for_pascal():
    """It installs, imports, and cannot run a kernel: the case that plain pip gets wrong."""
    findings = wheel_findings(
        {"torch": "2.14.1", "nvidia-cudnn-cu13": "9.24.0.43", "nvidia-nccl-cu13": "2.30.7"}, p100(0)
    )

    assert worst_cause(findings) == [(Verdict.FAIL, "arch-not-in-build", "gpu:0000:03:00.0")] * 2
    assert [(f.code, f.values["version"]) for f in findings if f.verdict is Verdict.FAIL] == [
        ("software.no-code-for-gpu", "2.14.1"),
        ("software.cudnn-too-new", "9.24.0.43"),
    ]


def test_the_index_build_holds_code_for_pascal():
    """2.14.1+cu126, with what it was built for beside it."""
    python = {"torch": "2.14.1+cu126", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.29.3"}

    findings = wheel_findings(python, p100(0), h100(1))

    assert len(findings) == 4
    assert {f.verdict for f in findings} == {Verdict.PASS}
    assert "has code for 2 GPUs" in str(findings[1].seen)


def test_a_cpu_build_asks_nothing_of_the_gpus():
    """Its version is compared with the plan; the rest does not apply."""
    assert wheel_findings({"torch": "2.14.1+cpu"}, p100(0)) == []
    assert wheel_findings({"torch": "2.14.1"}, p100(0), files={f"{SITE}/torch/version.py": "cuda = None\n"}) == []


def test_tensorflow_without_its_cuda_part_has_another_name():
    """tensorflow-cpu; the other wheel's tables say CUDA."""
    wheels, _ = read_wheels(facts(python={"tensorflow-cpu": "2.21.0"}))

    assert [(wheel.name, wheel.version) for wheel in wheels] == [("tensorflow", "2.21.0")]
    assert wheel_findings({"tensorflow-cpu": "2.21.0"}, p100(0)) == []


def test_the_newest_cudnn_left_pascal_behind():
    """tensorflow[and-cuda] asks for a range, and pip fills it with the newest."""
    python = {"tensorflow": "2.21.0", "nvidia-cudnn-cu12": "9.28.0.42", "nvidia-nccl-cu12": "2.32.3"}

    old, new = wheel_findings(python, p100(0)), wheel_findings(python, h100(0))

    assert worst_cause(old) == [(Verdict.FAIL, "arch-not-in-build", "gpu:0000:03:00.0")]
    assert old[2].steps[-1].command == "pip install nvidia-cudnn-cu12==9.10.2.21"
    assert worst_cause(new) == []


def test_a_library_outside_its_pin_is_a_warning():
    """The pin of the wheel's own METADATA outranks the tables."""
    metadata = "Name: torch\nRequires-Dist: nvidia-nccl-cu12==2.29.9; platform_system == 'Linux'\n\n"
    metadata += "Requires-Dist: nvidia-nccl-cu12==1.0\n"  # in the description, which is no header
    python = {"torch": "2.14.1+cu126", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.29.3"}

    findings = wheel_findings(python, h100(0), files={f"{SITE}/torch-2.14.1+cu126.dist-info/METADATA": metadata})
    gone = wheel_findings({"torch": "2.14.1+cu126", "nvidia-nccl-cu12": "2.29.3"}, h100(0))

    assert worst_cause(findings) == [(Verdict.WARN, "library-mismatch", "host")]
    assert "nvidia-nccl-cu12 ==2.29.9" in {f.wanted for f in findings}
    assert [f.seen for f in gone if f.verdict is Verdict.WARN] == [
        "torch 2.14.1+cu126 with nvidia-cudnn-cu12 not installed"
    ]


def test_wheels_of_two_cuda_majors_overwrite_each_other():
    """cu12 and cu13 of one library share their paths."""
    python = {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cudnn-cu13": "9.24.0.43"}

    assert worst_cause(wheel_findings(python)) == [(Verdict.FAIL, "library-mismatch", "host")]


def test_a_wheel_needs_the_driver_of_its_cuda_major():
    """Minor version compatibility has one floor for each major; without a module there is nothing to compare."""
    python = {"torch": "2.15.0", "nvidia-cudnn-cu13": "9.26.0.51", "nvidia-nccl-cu13": "2.30.7"}
    old = DriverState(loaded_version="570.211.01")

    (finding,) = [f for f in wheel_findings(python, h100(0), driver=old) if f.verdict is Verdict.FAIL]

    assert (finding.cause, finding.wanted) == ("library-mismatch", "driver 580.65.06 or newer")
    assert worst_cause(wheel_findings(python, h100(0), driver=DriverState())) == []


def test_a_build_that_nobody_knows_is_unknown():
    """A source build: neither code list nor CUDA is guessed. The file in the wheel names at least its CUDA."""
    bare = wheel_findings({"torch": "2.99.0"}, h100(0))
    named = wheel_findings({"torch": "2.99.0"}, h100(0), files={f"{SITE}/torch/version.py": "cuda: str = '13.0'\n"})

    assert [f.verdict for f in bare] == [Verdict.UNKNOWN]
    assert [f.verdict for f in named] == [Verdict.PASS, Verdict.UNKNOWN]
    assert [f.code for f in (*bare, named[1])] == ["software.build-unknown", "software.code-list-unknown"]


def test_tensorflow_says_in_its_own_file_what_it_was_built_for():
    """Read without importing it: a build that no table knows."""
    info = "build_info = {'cuda_version': '12.5.1', 'cuda_compute_capabilities': ['sm_60', 'compute_90'], }\n"
    path = f"{SITE}/tensorflow/python/platform/build_info.py"

    old = wheel_findings({"tensorflow": "2.99.0"}, p100(0), h100(1), files={path: info})
    cpu = wheel_findings({"tensorflow": "2.21.0"}, p100(0), files={path: "build_info = {'is_cuda_build': False}\n"})

    assert {f.verdict for f in old} == {Verdict.PASS}
    assert cpu == []


def test_a_tensorflow_without_its_cuda_packages_is_told_once():
    bare = wheel_findings({"tensorflow": "2.21.0"}, h100(0))

    assert worst_cause(bare) == [(Verdict.WARN, "library-mismatch", "host")]
    (finding,) = bare
    assert finding.steps[-1].command == "pip install 'tensorflow[and-cuda]==2.21.0'"
    assert "nvidia-cudnn-cu12" in finding.wanted


def test_ptx_stands_in_for_machine_code_but_not_on_blackwell():
    """TensorFlow 2.15 has PTX of 8.0 at most: translated for Hopper, seen to fail on Blackwell."""
    python = {"tensorflow": "2.15.1", "nvidia-cudnn-cu12": "8.9.4.25", "nvidia-nccl-cu12": "2.16.5"}
    card = h100(0).__class__(index=0, name="B200", uuid="x", pci_bus_id="0000:9b:00.0", device_id="2901")

    assert worst_cause(wheel_findings(python, h100(0))) == []
    assert worst_cause(wheel_findings(python, card)) == [(Verdict.FAIL, "arch-not-in-build", "gpu:0000:9b:00.0")]


def test_a_gpu_that_the_tables_do_not_know_is_asked_for_over_nvml():
    """And stays unknown where NVML is silent."""
    python = {"torch": "2.14.1+cu126", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.29.3"}
    odd = h100(0).__class__(
        index=0, name="odd", uuid="x", pci_bus_id="0000:9b:00.0", device_id="2cff", compute_capability="12.0"
    )
    told: NvmlReading = reading(odd)

    silent, asked = wheel_findings(python, odd), wheel_findings(python, odd, nvml=told)

    assert [(f.verdict, f.subject) for f in silent if f.verdict is not Verdict.PASS] == [
        (Verdict.UNKNOWN, "gpu:0000:9b:00.0")
    ]
    assert worst_cause(asked) == [(Verdict.FAIL, "arch-not-in-build", "gpu:0000:9b:00.0")]


IMPORTED = Imported(
    version="2.99.0",
    cuda="12.6",
    cudnn="9.10.2",
    nccl="2.29.3",
    arch_list=("sm_50", "sm_60", "sm_90a"),
    mapped=("/opt/venv/site/nvidia/cudnn/lib/libcudnn.so.9",),
    folder="/opt/venv/site",
)


def test_torchs_own_word_outranks_the_tables():
    """A source build that was asked."""
    findings = wheel_findings({"torch": "2.99.0"}, p100(0), imported=IMPORTED)

    assert [f.verdict for f in findings] == [Verdict.PASS] * 3
    assert "torch.cuda.get_arch_list(): sm_50 sm_60 sm_90a" in findings[2].evidence


def test_a_library_from_elsewhere_is_named():
    """LD_LIBRARY_PATH put the host's cuDNN before the wheel's own."""
    host_library = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9"
    shadowed = Imported(**{**{f: getattr(IMPORTED, f) for f in IMPORTED.__struct_fields__}, "mapped": (host_library,)})

    finding = wheel_findings({"torch": "2.99.0"}, p100(0), imported=shadowed)[0]

    assert (finding.verdict, finding.cause, finding.evidence) == (Verdict.WARN, "library-mismatch", (host_library,))


def test_a_torch_that_cannot_be_asked_is_unknown():
    """With what it said."""
    finding = wheel_findings({"torch": "2.14.1+cu126"}, p100(0), imported=Imported(error="no answer in 60 s"))[0]

    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "no answer in 60 s")


def test_a_cpu_torch_that_was_asked_is_skipped():
    """No CUDA libraries, so none can be wrong; and none is called right."""
    cpu = Imported(version="2.13.0+cpu", folder="/opt/venv/site")

    findings = list(stack.evaluate(facts(python={"torch": "2.13.0+cpu"}), imported=cpu))

    assert [(f.verdict, f.seen) for f in findings] == [
        (Verdict.SKIP, "no plan"),
        (Verdict.SKIP, "torch 2.13.0+cpu"),
    ]


def test_what_the_wheels_need_is_read():
    """Their files; and NVML only for a GPU that the tables do not contain, and only if there is a wheel."""
    odd = on_bus(h100(0).__class__(index=0, name="odd", uuid="x", pci_bus_id="0000:9b:00.0", device_id="2cff"))
    python = {"torch": "2.14.1+cu126", "tensorflow-cpu": "2.21.0"}
    files = [
        "text:{purelib}/torch/version.py",
        "text:{purelib}/torch-2.14.1+cu126.dist-info/METADATA",
        "text:{purelib}/tensorflow/python/platform/build_info.py",
        "text:{purelib}/tensorflow_cpu-2.21.0.dist-info/METADATA",
    ]

    assert list(more(facts(python=python, pci=on_bus(p100(0))))) == files
    assert list(more(facts(python=python, pci=odd))) == [*files, "nvml"]
    assert list(more(facts(pci=odd))) == []
