"""Level 4: CUDA images on real GPUs, by `make test-images GPUS=1 IMAGE=torch-cu132`; without a GPU it fails."""

import pytest

from tests.images.containers import ASKED, VERSIONS, Image

pytestmark = [pytest.mark.images, pytest.mark.gpu]

SHM = "8g"


@pytest.fixture(scope="session", params=ASKED)
def image(request):
    if not VERSIONS.variant(request.param).spec.gpus:
        pytest.fail(f"{request.param} has no CUDA: name a CUDA variant, IMAGE=torch-cu132", pytrace=False)
    return Image(request.param)


@pytest.fixture
def on_gpus(image):
    """Runs a command in the image with all GPUs of this machine."""
    import docker.errors
    from docker.types import DeviceRequest

    def run(*command):
        try:
            return image.run(*command, device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])], shm_size=SHM)
        except docker.errors.APIError as error:
            pytest.fail(
                f"the engine gives containers no GPU: {error.explanation}. Install NVIDIA's container toolkit (make "
                "provision does) and register it: nvidia-ctk runtime configure --runtime=docker, reload the engine.",
                pytrace=False,
            )

    return run


def test_the_self_test_sees_the_gpus(on_gpus):
    answer = on_gpus("gpucheck", "image", "--level", "full", "--format", "json")
    said = answer.json

    assert answer.status == 0, answer.output
    assert said["gpus"] >= 1
    assert said["driver"]


def test_the_framework_trains_on_them(on_gpus):
    """On one GPU both ranks share it where the strategy allows that; what ran on CPU ranks proves no kernel."""
    answer = on_gpus("gpucheck", "smoke", "--format", "json")
    said = answer.json

    assert said["counts"]["fail"] == 0, answer.output
    assert {outcome["placement"] for outcome in said["outcomes"]} & {"gpus", "shared-gpu"}, answer.output


def test_verify_finds_no_fault_in_image_or_host(on_gpus):
    answer = on_gpus("gpucheck", "verify", "--format", "json")

    assert answer.json["counts"]["fail"] == 0, answer.output


def test_nvidia_smi_comes_with_the_driver(on_gpus):
    answer = on_gpus("nvidia-smi", "--list-gpus")

    assert answer.status == 0, answer.output
    assert answer.output.startswith("GPU 0: ")
