"""Level 3: every image as a container, without a GPU. Opt-in with -m images; asked for and impossible is a failure."""

import json
import time

import pytest

from gpucheck.images.build import SBOM, read_file
from gpucheck.simulator import profile_names
from tests.images.containers import ASKED, Image
from tests.images.test_text import DRIVER_FOLDERS
from tests.shared import END_S

pytestmark = pytest.mark.images

STRANGER = "12345:6789"
MB = 2**20
GIB = "1g"

TWO_DEVICES = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
def rank(): return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0
total = strategy.reduce("SUM", strategy.run(rank), axis=None)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = tf.random.stateless_normal([64, 4], seed=(1, 2))
y = tf.reduce_sum(x, axis=1, keepdims=True)
losses = model.fit(x, y, batch_size=16, epochs=3, verbose=0).history["loss"]
fell = "fell" if losses[-1] < losses[0] else "did not fall"
print(f"{strategy.num_replicas_in_sync} replicas, sum {float(total)}, loss {fell}")
"""


@pytest.fixture(scope="session", params=ASKED)
def image(request):
    return Image(request.param)


@pytest.fixture
def report(image):
    """What `gpucheck image --level full` says inside."""
    return image.run("gpucheck", "image", "--level", "full", "--format", "json", shm_size=GIB).json


def test_the_self_test_finds_the_image_whole(image, report):
    """Exit 3 and one UNKNOWN, the missing GPU, in a CUDA variant; exit 0 in a CPU variant."""
    answer = image.run(shm_size=GIB)

    assert report["counts"]["fail"] == report["counts"]["warn"] == 0, report["findings"]
    assert answer.status == (3 if image.variant.spec.gpus else 0), answer.output
    assert image.name in answer.output
    if image.variant.spec.gpus:
        assert "GPU" in answer.output
        assert "fix       " in answer.output


def test_labels_are_the_libraries_own_answers(image, report):
    """By what libcudart, libcudnn and libnccl say of themselves, not by what a package calls itself."""
    filled = image.variant.filled
    cudnn = ".".join(filled.cudnn.split(".")[:3]) if filled.cudnn else None
    said = {"cuda": filled.cuda, "cudnn": cudnn, "nccl": filled.nccl}

    assert report["libraries"] == {part: version for part, version in said.items() if version}
    for part in said:
        assert image.labels.get(f"gpucheck.images.{part}") == getattr(filled, part)
    python = image.python("import platform; print(platform.python_version())").output
    assert python.startswith(f"{image.labels['gpucheck.images.python']}.")
    assert (
        report["frameworks"][image.variant.framework].partition("+")[0]
        == image.labels["gpucheck.images.framework-version"]
    )


def test_each_cuda_library_is_there_once(image):
    code = (
        "import pathlib, collections\n"
        "names = ('libcudart.so.', 'libcudnn.so.', 'libnccl.so.', 'libcublas.so.', 'libcufft.so.')\n"
        "seen = {p.resolve() for p in pathlib.Path('/').glob('[!ps]*/**/lib*.so.*') if p.name.startswith(names)}\n"
        "print(collections.Counter(p.name.split('.so.')[0] for p in seen))"
    )
    answer = image.python(code, user="0")

    counts = eval(answer.output.strip(), {"Counter": dict})  # noqa: S307 - what our own line above printed
    assert set(counts.values()) <= {1}
    assert bool(counts) is bool(image.variant.spec.gpus)


def test_it_runs_as_anybody_with_a_read_only_root_and_no_network(image):
    """torch's cache asks for the user's name, which no passwd file knows."""
    code = f"import getpass, {image.variant.framework} as f; print(f.__version__, getpass.getuser())"
    answer = image.python(
        code,
        user=STRANGER,
        read_only=True,
        tmpfs={"/tmp": "exec"},
        environment={"HOME": "/tmp", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )

    assert answer.status == 0, answer.output
    assert answer.output.splitlines()[-1].startswith(image.variant.filled.version)


def test_anybody_can_write_where_work_is_done_and_nobody_elsewhere(image):
    answer = image.run(
        "sh", "-c", "touch /workspace/a $HOME/b && ! touch /opt/venv/c /usr/c 2>/dev/null", user=STRANGER
    )

    assert answer.status == 0, answer.output
    assert image.image.attrs["Config"]["User"] == "1000:1000"


def test_hardly_any_shared_memory_is_diagnosed(image):
    answer = image.run("gpucheck", "image", shm_size=MB)

    assert "WARN" in answer.output
    assert "--shm-size" in answer.output
    assert answer.status == 1


@pytest.mark.parametrize("status", [0, 7, 64])
def test_an_exit_code_passes_through(image, status):
    assert image.run("sh", "-c", f"exit {status}").status == status


@pytest.mark.parametrize("shell", [False, True], ids=["directly", "behind-a-shell"])
def test_a_signal_reaches_the_program(image, shell):
    """Below tini, which is process 1, the program ends by its own handler, also behind a shell that waits for it."""
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (print('checkpoint', flush=True), sys.exit(42)))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    words = ["sh", "-c", 'trap : TERM; python -c "$CODE"; exit $?'] if shell else ["python", "-c", code]
    container = image.start(*words, environment={"CODE": code})
    try:
        deadline = time.monotonic() + END_S
        while b"up" not in container.logs() and time.monotonic() < deadline:
            time.sleep(0.1)
        container.kill("SIGTERM")
        status = container.wait(timeout=END_S)["StatusCode"]
        assert b"checkpoint" in container.logs()
        assert status == 42
    finally:
        container.remove(force=True)


@pytest.mark.parametrize("first", [True, False], ids=["process-1", "below-another-init"])
def test_orphans_are_reaped(image, first):
    code = (
        "import os, subprocess, time\n"
        "subprocess.run(['sh', '-c', 'sleep 0.2 &'])\n"
        "time.sleep(1)\n"
        "print(sum(open(f'/proc/{p}/stat').read().split()[2] == 'Z' for p in os.listdir('/proc') if p.isdigit()))"
    )

    assert image.python(code, init=not first).output.strip() == "0"


def test_a_login_shell_finds_the_environment(image):
    """enroot starts one, and editors do: Debian's /etc/profile replaces the PATH of the image."""
    answer = image.run("sh", "-l", "-c", "command -v python && command -v gpucheck")

    assert answer.output.split() == ["/opt/venv/bin/python", "/opt/venv/bin/gpucheck"], answer.output


def test_https_finds_its_certificates(image):
    """Weights, datasets and pip are behind it."""
    answer = image.python("import ssl; print(len(ssl.create_default_context().get_ca_certs()))")

    assert int(answer.output) > 100, answer.output


def test_no_program_gives_another_users_rights(image):
    answer = image.run("find", "/", "-xdev", "-perm", "/6000", "-type", "f", user="0")

    assert answer.output == ""


def test_a_user_has_a_name_and_text_is_utf_8(image):
    answer = image.run("sh", "-c", "whoami; echo $HOME; locale charmap; ps -o comm= -p $$")

    assert answer.output.split() == ["any", "/home/any", "UTF-8", "sh"], answer.output


def test_what_nccl_loads_for_infiniband_is_in_cuda_variants(image):
    code = "import ctypes; [ctypes.CDLL(f'lib{name}.so.1') for name in ('ibverbs', 'rdmacm', 'mlx5')]"

    assert (image.python(code).status == 0) is bool(image.variant.spec.gpus)


def test_cpp_is_compiled_where_torch_compile_is_promised(image):
    answer = image.run("sh", "-c", "echo 'int main() { return 0; }' | g++ -x c++ -o /tmp/a - && /tmp/a")

    assert (answer.status == 0) is bool(image.variant.compiler), answer.output


def test_the_sbom_lists_what_is_installed(image):
    inside = read_file(image.client, image.tag, SBOM)
    parts = json.loads(inside)["components"]
    names = {part["name"].lower().replace("_", "-"): part.get("version", "") for part in parts}

    assert inside == image.built.sbom.read_bytes()
    framework = names.get(image.variant.framework) or names[f"{image.variant.framework}-cpu"]
    assert framework.partition("+")[0] == image.variant.filled.version
    assert "gpucheck-cluster" in names
    assert "msgspec" in names


def test_nothing_of_the_build_is_left(image):
    """No wheel folder, CA, pip setting or tool of the build stage."""
    answer = image.run(
        "sh", "-c", "ls -d /tmp/* /opt/tools /usr/local/lib/image-build /etc/pip.conf 2>/dev/null", user="0"
    )
    history = json.dumps(image.image.history())

    assert answer.output.strip() == ""
    assert "WHEELS_URL=http" not in history
    assert "PIP_INDEX_URL=" not in history
    environment = dict(word.split("=", 1) for word in image.image.attrs["Config"]["Env"])
    assert {name for name in environment if "NVIDIA" in name} == {
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    }
    assert environment["NVIDIA_VISIBLE_DEVICES"] == ("all" if image.variant.spec.gpus else "void")
    # By these two names enroot's hooks 98-nvidia.sh and 50-slurm-pytorch.sh go.
    torch = image.variant.framework == "torch"
    assert environment.get("PYTORCH_VERSION") == (image.variant.filled.version if torch else None)
    assert tuple(environment["LD_LIBRARY_PATH"].split(":")) == DRIVER_FOLDERS
    assert not environment.keys() & {"PIP_INDEX_URL", "PIP_CERT", "http_proxy", "https_proxy"}


def test_a_compiler_is_there_exactly_where_the_row_says(image):
    """It compiles what torch.compile's backend would: a stub that includes Python.h."""
    code = "#include <Python.h>\nint main(void) { return 0; }"
    words = 'gcc -I"$(python -c "import sysconfig; print(sysconfig.get_path(\'include\'))")" -c -x c -o /tmp/a.o -'
    answer = image.run("sh", "-c", f"printf '%b' '{code.replace(chr(10), chr(92) + 'n')}' | {words}")

    assert (answer.status == 0) is bool(image.variant.compiler), answer.output


def test_the_simulator_runs_inside_without_a_compiler(image):
    """Every machine of ours, for each branch of the driver has a library of its own."""
    one = "gpucheck verify --simulate $machine --level quick --only driver"
    machines = " ".join(name for name in profile_names() if name != "no-gpu")
    answer = image.run("sh", "-c", f"for machine in {machines}; do {one} || exit; done")

    assert answer.status == 0, answer.output
    assert answer.output.count("  1 pass  in ") == len(machines.split()), answer.output


def test_two_ranks_train(image):
    """torch: two processes with gloo. TensorFlow: two logical CPU devices in one process, the same gradient twice."""
    if image.variant.framework == "torch":
        answer = image.run("gpucheck", "smoke", "--format", "json", shm_size=GIB, user=STRANGER)
        said = answer.json
        assert {outcome["world_size"] for outcome in said["outcomes"]} == {2}
        assert said["counts"]["fail"] == 0, answer.output
    else:
        answer = image.python(TWO_DEVICES, environment={"TF_CPP_MIN_LOG_LEVEL": "3"}, user=STRANGER)
        assert answer.output.splitlines()[-1] == "2 replicas, sum 3.0, loss fell", answer.output
