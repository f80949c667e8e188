"""Level 1: what the files say. No base without a digest, no root, no second place that states a version."""

import re
import subprocess
from pathlib import Path

import pytest

from gpucheck.images.versions import read_versions

ROOT = Path(__file__).parents[2]
VERSIONS = read_versions(ROOT)
DOCKERFILES = sorted(ROOT / f"images/{row.framework}/Dockerfile" for row in VERSIONS.variants.values())
FRAMEWORKS = sorted(set(DOCKERFILES))
# Where GKE mounts the driver.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")
SCRIPTS = sorted((ROOT / "images/common").iterdir())


def instructions(path):
    """Lines of a Dockerfile without comments, continuations joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    return [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]


@pytest.fixture(params=FRAMEWORKS, ids=lambda path: path.parent.name)
def dockerfile(request):
    return request.param


def test_the_base_is_pinned_by_digest_and_stated_once():
    assert re.fullmatch(r"ubuntu:24\.04@sha256:[0-9a-f]{64}", VERSIONS.base.image or "")
    digest = str(VERSIONS.base.digest)
    places = subprocess.run(["git", "grep", "-l", digest], cwd=ROOT, check=False, capture_output=True, text=True)

    assert places.stdout.split() in (["images/versions.yml"], [])


def test_no_version_is_stated_outside_the_versions_file(dockerfile):
    for line in instructions(dockerfile):
        assert not re.search(r"\d+\.\d+", line), line


def test_nothing_is_piped_into_a_shell_and_no_latest_is_taken(dockerfile):
    for path in (dockerfile, *SCRIPTS):
        text = path.read_text()
        assert "latest" not in text
        assert not re.search(r"(curl|wget)", text)
        # Only where a platform mounts the driver; a folder of other libraries would come before the wheels' own.
        paths = [tuple(value.split(":")) for value in re.findall(r"LD_LIBRARY_PATH=(\S+)", text)]
        assert paths == ([DRIVER_FOLDERS] if path == dockerfile else [])
        assert "|| true" not in text


def test_it_runs_as_nobody_in_particular_below_tini(dockerfile):
    lines = instructions(dockerfile)

    assert [line for line in lines if line.startswith("USER ")] == ["USER 1000:1000"]
    # -g: behind a shell the program gets the signal too. -s: it reaps orphans where it is not process 1.
    assert 'ENTRYPOINT ["tini", "-s", "-g", "--"]' in lines
    assert not any(line.startswith("HEALTHCHECK") for line in lines)


def test_what_reaches_the_build_is_no_environment_of_the_image(dockerfile):
    """CA, wheels and index are arguments of stages, and of the runtime stage only the CA's address."""
    lines = instructions(dockerfile)
    runtime = lines[lines.index("FROM ${BASE} AS runtime") :]

    assert not any(re.search(r"PIP_|WHEELS_URL", line) for line in runtime)
    assert not any(re.search(r"CA_URL|PIP_INDEX", line) for line in lines if line.startswith("ENV "))


def test_a_packages_update_costs_no_layer_of_the_framework(dockerfile):
    copies = [line for line in instructions(dockerfile) if line.startswith("COPY --from=build")]

    assert [line.split()[2] for line in copies] == ["/layers/cuda/", "/layers/framework/", "/opt/venv", "/layer/"]
    assert instructions(dockerfile)[-1] == copies[-1]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_and_can_be_run(path):
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", path], check=True)
    assert "set -eu" in path.read_text()


def test_no_file_of_the_images_holds_a_secret():
    words = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|password\s*=|://[^/\s]+:[^/\s]+@", re.IGNORECASE)
    for path in (ROOT / "images").rglob("*"):
        if path.is_file() and "lab" not in path.relative_to(ROOT / "images").parts:
            assert not words.search(path.read_text(errors="replace")), path
