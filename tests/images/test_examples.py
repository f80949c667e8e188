"""What docs/images.md shows, run: extend an image, Apptainer, enroot."""

import json
import os
import re
import shlex
import socket
import subprocess
import zipfile
from pathlib import Path

import pytest
from jinja2 import Environment, StrictUndefined

from tests.images.containers import ASKED, Image
from tests.playbooks.modules import ROLES

ROOT = Path(__file__).parents[2]


def fenced(page, word):
    """The one indented block of a page that holds a word."""
    blocks = re.findall(r"(?:^ {4}.*\n(?:^\s*\n(?=^ {4}))?)+", (ROOT / page).read_text(), flags=re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    return re.sub(r"^ {4}", "", found, flags=re.MULTILINE)


def wheel(folder, name, files, requires=()):
    """A wheel of text files. requires: its requirements."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires
    )
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)


def build(folder, dockerfile, tag, **arguments):
    """Build a Dockerfile with no package index but the folder ``wheels``: exit status and output."""
    text = re.sub(
        r"^(FROM .*)$", r"\1\nCOPY wheels /wheels\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels", dockerfile, flags=re.M
    )
    (folder / "Dockerfile").write_text(text)
    words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    return subprocess.run(
        ["docker", "build", "--network", "none", "--force-rm", "--tag", tag, *words, folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )


def remove(tag):
    """Remove what was built."""
    subprocess.run(["docker", "rmi", "--force", tag], capture_output=True, check=False)


pytestmark = pytest.mark.images

PAGE = "docs/images.md"
GIB = "1g"
DRIVER = "int cuInit(unsigned flags) { return 0; }"


@pytest.fixture(scope="module", params=ASKED[:1])
def image(request):
    return Image(request.param)


@pytest.fixture
def context(tmp_path):
    """A build context with two wheels: one that needs what the image has, one that breaks it."""
    wheels = tmp_path / "wheels"
    wheel(wheels, "transformers", {"transformers.py": "import numpy\n"}, ["numpy"])
    wheel(wheels, "breaks", {"nvidia/cudnn/lib/libcudnn.so.9": "another cuDNN\n"})
    return tmp_path


@pytest.fixture
def tag():
    yield "localhost/gpucheck-example:test"
    remove("localhost/gpucheck-example:test")


def recipe(image):
    return fenced(PAGE, "FROM gpucheck/torch:<tag>").replace("gpucheck/torch:<tag>", image.tag)


def test_the_pages_recipe_to_extend_an_image_builds(image, context, tag):
    """It failed for three reasons: no lock in the image, hashes in it, and no CA certificates."""
    done = build(context, recipe(image), tag)

    assert done.returncode == 0, done.stdout + done.stderr
    words = ["docker", "run", "--rm", tag, "sh", "-c", "python -c 'import transformers' && id -u && pip check"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("1000\n")


def test_an_added_package_that_breaks_the_image_fails_the_build(image, context, tag):
    done = build(context, recipe(image).replace("transformers", "breaks"), tag)

    assert done.returncode != 0
    assert "cuDNN" in done.stdout


def test_any_user_can_add_a_package_for_a_run(image, context):
    """The page's line, without root: the environment itself stays as it was tested."""
    line = fenced(PAGE, "pip install --prefix").strip()
    site = f"/workspace/site/lib/python{image.labels['gpucheck.images.python']}/site-packages"
    answer = image.run(
        "sh",
        "-c",
        f"{line} && PYTHONPATH={site} python -c 'import transformers; print(transformers.__file__)'",
        user="12345:6789",
        volumes={str(context / "wheels"): {"bind": "/wheels", "mode": "ro"}},
        environment={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"},
    )

    assert answer.output.splitlines()[-1] == f"{site}/transformers.py", answer.output


def test_apptainers_driver_folder_is_found_and_not_warned_of(image, tmp_path):
    """Simulated: Apptainer's user, root, environment and folder, with a driver library of ours."""
    (tmp_path / "driver.c").write_text(DRIVER)
    libraries = tmp_path / "libs"
    libraries.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", libraries / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    options = {
        "entrypoint": "",
        "user": "12345:6789",
        "read_only": True,
        "tmpfs": {"/tmp": "exec", "/home/someone": "uid=12345"},
        "volumes": {str(libraries): {"bind": "/.singularity.d/libs", "mode": "ro"}},
        "shm_size": GIB,
    }
    # As `apptainer --nv` appends it to what the image sets.
    own = dict(word.split("=", 1) for word in image.image.attrs["Config"]["Env"])["LD_LIBRARY_PATH"]
    environment = {"HOME": "/home/someone", "LD_LIBRARY_PATH": f"{own}:/.singularity.d/libs"}
    answer = image.run("python", "-m", "gpucheck.images.selfreport", "--quick", environment=environment, **options)
    said = json.loads(answer.output)

    assert (said["driver"], said["driver_files"]) == ("loaded", ["/.singularity.d/libs/libcuda.so.1"])
    assert said["shadowing"] == {}
    assert "LD_LIBRARY_PATH" not in image.run("gpucheck", "image", environment=environment, **options).output
    # Found where it lies, too, when the site's environment has lost the folder.
    lost = image.run(
        "python", "-m", "gpucheck.images.selfreport", "--quick", environment={"LD_LIBRARY_PATH": ""}, **options
    )
    assert json.loads(lost.output)["driver_files"] == ["/.singularity.d/libs/libcuda.so.1"]


@pytest.fixture(params=ASKED)
def command(request, tmp_path):
    template = (ROLES / "gpucheck/templates/gpucheck.j2").read_text(encoding="utf-8")
    shell = Environment(undefined=StrictUndefined)  # noqa: S701 - no HTML
    shell.filters["quote"] = shlex.quote
    text = shell.from_string(template).render(
        gpucheck_engine="docker", gpucheck_image_pulled=Image(request.param).tag, gpucheck_image_options=[]
    )
    made = tmp_path / "gpucheck"
    made.write_text(text.replace("--volume /var/lib/gpucheck:", f"--volume {tmp_path}:"), encoding="utf-8")
    made.chmod(0o755)
    return made


def test_a_report_of_this_host_is_written_from_the_container(command, tmp_path):
    words = ["verify", "--simulate", "p100-pcie-x2", "--level", "quick", "--format", "json"]
    done = subprocess.run(
        [command, *words, "-o", "/var/lib/gpucheck/report.json"], capture_output=True, text=True, check=False
    )

    report = json.loads((tmp_path / "report.json").read_bytes())
    # TensorFlow's CPU image warns that TensorFlow is without its CUDA packages.
    assert done.returncode == {"pass": 0, "warn": 1}[report["verdict"]], done.stderr
    assert report["host"] == socket.gethostname()
    assert report["simulated"] is True


def test_the_exit_status_is_gpuchecks_own(command):
    done = subprocess.run([command, "verify", "--levle", "quick"], capture_output=True, text=True, check=False)

    assert (done.returncode, "did you mean" in done.stderr.lower()) == (64, True)
