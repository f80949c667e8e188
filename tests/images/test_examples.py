"""What docs/images.md and its examples show, run: extend, Kubernetes, Compose, Apptainer, enroot, CI, notebook."""

import json
import subprocess
import time

import pytest

from tests.images.containers import ASKED, Image
from tests.images.examples import CONTAINERS, build, fenced, remove, wheel, yaml_of

pytestmark = pytest.mark.images

PAGE = "docs/images.md"
GIB = "1g"
DRIVER = "int cuInit(unsigned flags) { return 0; }"


@pytest.fixture(scope="module", params=ASKED[:1])
def image(request):
    return Image(request.param)


@pytest.fixture
def context(tmp_path):
    """A build context with three wheels: one that adds, one that needs what the image has, one that breaks it."""
    wheels = tmp_path / "wheels"
    wheel(wheels, "transformers", {"transformers.py": "import numpy\n"}, ["numpy"])
    wheel(wheels, "pytest", {"pytest.py": "print('tests ran')\n"}, ["packaging"])
    wheel(wheels, "jupyterlab", {"jupyterlab.py": ""})
    wheel(wheels, "breaks", {"nvidia/cudnn/lib/libcudnn.so.9": "another cuDNN\n"})
    return tmp_path


@pytest.fixture
def tag():
    yield "localhost/gpucheck-example:test"
    remove("localhost/gpucheck-example:test")


def status_without_gpu(image):
    """What `gpucheck image` ends with where no GPU is: a CUDA variant cannot be proved."""
    return 3 if image.variant.spec.gpus else 0


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


def test_the_notebook_layer_builds_and_checks_itself(image, context, tag):
    done = build(
        context, (CONTAINERS / "notebook.Dockerfile").read_text().replace("FROM ${IMAGE}", f"FROM {image.tag}"), tag
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run(
        ["docker", "run", "--rm", tag, "gpucheck", "image"], check=False
    ).returncode == status_without_gpu(image)


def in_pod(image, args, **options):
    """A container as a strict cluster starts it: a random user, no privilege, a read-only root, its own kernel log."""
    return image.run(
        *args,
        user="1000680000:0",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "exec"},
        shm_size=GIB,
        environment={"HOME": "/tmp"},
        **options,
    )


def test_the_jobs_init_container_lets_a_healthy_pod_start(image):
    (prove,) = yaml_of("job.yml")["spec"]["template"]["spec"]["initContainers"]

    answer = in_pod(image, prove["args"])

    assert answer.status == bool(status_without_gpu(image)), answer.output


def test_the_jobs_former_init_container_could_not_end_well(image):
    """It asked for the host's kernel log, which such a pod has not: UNKNOWN, and the Job ended."""
    answer = in_pod(image, ["gpucheck", "verify", "--level", "quick", "--only", "kernel-log"])

    assert answer.status == 3, answer.output


def test_composes_proof_and_health_check_pass_in_a_healthy_container(image):
    services = yaml_of("compose.yml")["services"]
    prove = [word.replace("$$", "$") for word in services["prove"]["command"]]
    health = services["train"]["healthcheck"]["test"][1:]

    assert image.run(*prove).status == bool(status_without_gpu(image))
    check = {"test": ["CMD", *health], "interval": 10**9, "timeout": 30 * 10**9, "retries": 1}
    container = image.start("sleep", "120", healthcheck=check)
    try:
        deadline = time.monotonic() + 60
        state = {}
        while state.get("Status", "starting") == "starting" and time.monotonic() < deadline:
            time.sleep(0.5)
            container.reload()
            state = container.attrs["State"].get("Health", {})
        assert state.get("Status") == ("unhealthy" if image.variant.spec.gpus else "healthy"), state
    finally:
        container.remove(force=True)


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


def test_enroots_hooks_find_the_names_that_they_ask_for(image):
    """Simulated: 98-nvidia.sh goes by NVIDIA_VISIBLE_DEVICES, 50-slurm-pytorch.sh by PYTORCH_VERSION."""
    environment = dict(word.split("=", 1) for word in image.image.attrs["Config"]["Env"])

    assert environment["NVIDIA_VISIBLE_DEVICES"] == ("all" if image.variant.spec.gpus else "void")
    assert environment.get("PYTORCH_VERSION") == (
        image.variant.filled.version if image.variant.framework == "torch" else None
    )


def checked_out(context, scripts, user, site):
    """The scripts of a CI job in the image as its runner starts it: a checkout of its own user on a mount."""
    checkout = context / "checkout"
    checkout.mkdir(mode=0o777)
    checkout.chmod(0o777)
    return [
        *("docker", "run", "--rm", "--interactive", "--network", "none", "--shm-size", "1g", "--user", user),
        *(
            "--volume",
            f"{checkout}:/checkout",
            "--workdir",
            "/checkout",
            "--volume",
            f"{context / 'wheels'}:/wheels:ro",
        ),
        *("--env", "PIP_NO_INDEX=1", "--env", "PIP_FIND_LINKS=/wheels", "--env", f"PYTHONPATH=/checkout/{site}"),
    ], "\n".join(["set -e", *scripts])


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_repositorys_tests_run_in_the_image(image, context, ci):
    """GitHub runs each step by a shell as --user says; GitLab pipes its script into a shell below the entry point."""
    # The examples are for the pinned base's Python; a stand-in may have another.
    site = f"site/lib/python{image.labels['gpucheck.images.python']}/site-packages"
    if ci == "github":
        job = yaml_of("github-tests.yml")["jobs"]["cpu"]
        assert "--user 1001" in job["container"]["options"]
        scripts = [step["run"] for step in job["steps"] if "run" in step and "if" not in step]
        words, script = checked_out(context, scripts, "1001", site)
        command = [*words, image.tag, "sh", "-e", "-c", script]
    else:
        words, script = checked_out(context, yaml_of("gitlab-ci.yml")[".tests"]["script"], "1000", site)
        command = [*words, image.tag, "sh"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)

    if ci == "gitlab" and image.variant.spec.gpus:
        # Its first line proves the image, and no GPU is here.
        assert done.returncode == 1, done.stdout + done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests ran" in done.stdout


def test_the_devcontainers_user_is_in_the_image_and_may_write_its_home(image):
    answer = image.run("sh", "-c", "whoami && touch ~/.vscode-server && echo $HOME", user="any")

    assert answer.output.split() == ["any", "/home/any"], answer.output
