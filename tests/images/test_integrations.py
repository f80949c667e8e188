"""What docs/integrations/containers gives to users: it parses, it names what exists, and the scan's gate closes."""

import os
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml

from gpucheck.images.versions import read_versions

FOLDER = Path(__file__).parents[2] / "docs/integrations/containers"
CI = FOLDER / "ci.sh"
VERSIONS = read_versions(FOLDER.parents[2])
TODAY = date.today()
GOOD = {"id": "CVE-2026-1", "reason": "the parser is never reached", "expires": TODAY + timedelta(days=30)}


def exceptions(tmp_path, *rows, variant="torch-cpu"):
    """Run the gate's script over these exceptions."""
    path = tmp_path / "exceptions.yml"
    path.write_text(yaml.safe_dump({"exceptions": list(rows)}))
    words = [sys.executable, str(FOLDER / "scan_exceptions.py"), str(path), variant]
    return subprocess.run(words, check=False, capture_output=True, text=True)


def test_an_exception_with_reason_and_time_left_passes(tmp_path):
    assert exceptions(tmp_path, GOOD).stdout == "CVE-2026-1\n"
    assert exceptions(tmp_path, {**GOOD, "expires": TODAY}).returncode == 0


def test_an_exception_of_another_variant_is_not_passed_on(tmp_path):
    assert exceptions(tmp_path, {**GOOD, "variants": ["torch-cu132"]}).stdout == ""


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**GOOD, "expires": TODAY - timedelta(days=1)}, "expired on"),
        ({"id": "CVE-2026-1", "expires": TODAY}, "say in a sentence why"),
        ({**GOOD, "reason": "todo"}, "say in a sentence why"),
        ({"id": "CVE-2026-1", "reason": "never reached by us"}, "say until when"),
        ({**GOOD, "expires": "soon"}, "say until when"),
        ({**GOOD, "until": TODAY}, "no such key: until"),
        ({"reason": "x y z", "expires": TODAY}, "needs an id"),
        ("CVE-2026-1", "needs an id"),
    ],
)
def test_an_expired_or_unreasoned_exception_stops_the_scan(tmp_path, row, words):
    done = exceptions(tmp_path, GOOD, row)

    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_a_damaged_exceptions_file_is_one_line(tmp_path):
    path = tmp_path / "exceptions.yml"
    for text, words in (("exceptions: {", "not YAML"), ("rows: []", "must be a list")):
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, FOLDER / "scan_exceptions.py", path, "torch-cpu"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_our_own_exceptions_hold_today():
    words = [sys.executable, str(FOLDER / "scan_exceptions.py"), str(FOLDER / "scan-exceptions.yml"), "torch-cpu"]

    assert subprocess.run(words, check=False, capture_output=True).returncode == 0


@pytest.fixture
def tools(tmp_path):
    """Stand-ins that write down what they are asked; gpucheck answers for one image."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "log"
    for name in ("trivy", "cosign", "docker", "pytest", "gpucheck"):
        tool = folder / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{ANSWERS.get(name, "")}\n')
        tool.chmod(0o755)

    def run(*words, tag="gpucheck/torch:1-cpu-py312", **environment):
        known = {"PATH": f"{folder}:{os.environ['PATH']}", "TAG": tag, "REGISTRY": "r.example/t", **environment}
        done = subprocess.run(["bash", CI, *words], check=False, capture_output=True, text=True, env=known, cwd=FOLDER)
        return done, log.read_text() if log.exists() else ""

    return run


ANSWERS = {
    "gpucheck": """case "$*" in
"image list --format json")
  echo '{"variants": {"a": {"filled": {"locked": true}}, "b": {"filled": {"locked": false}}}}' ;;
image\\ build*) echo "$TAG  1 MB  built" ;;
esac""",
    "docker": 'case "$*" in image*) echo "r.example/t/gpucheck/torch@sha256:1" ;; esac',
}


def test_without_names_every_variant_with_a_lock_is_taken(tools):
    done, log = tools("build")

    assert done.returncode == 0, done.stderr
    assert "gpucheck image build a\n" in log
    assert "build b" not in log


def test_the_scan_stops_at_what_can_be_fixed_and_is_grave(tools):
    done, log = tools("scan", "torch-cpu")

    assert done.returncode == 0, done.stderr
    assert re.search(r"trivy image --ignore-unfixed --severity HIGH,CRITICAL --exit-code 1 .*gpucheck/torch:1", log)


def test_test_runs_the_container_tests_of_the_variant(tools):
    assert "pytest -m images and not gpu tests/images" in tools("test", "torch-cpu")[1]


def test_publish_pushes_a_tag_and_an_immutable_one_and_no_latest(tools):
    done, log = tools("publish", "torch-cpu")

    assert done.returncode == 0, done.stderr
    pushed = re.findall(r"docker push (\S+)", log)
    assert pushed[0] == "r.example/t/gpucheck/torch:1-cpu-py312"
    assert re.fullmatch(r".*-py312-\d{8}-[0-9a-f]{12}", pushed[1])
    assert "latest" not in log


def test_an_image_on_a_stand_in_base_is_not_published(tools):
    done, log = tools("publish", "torch-cpu", tag="gpucheck/torch:1-cpu-py311-debian12")

    assert done.returncode == 2
    assert "stand-in base" in done.stderr
    assert "push" not in log


def test_sign_signs_the_digest_and_attests_the_sbom(tools):
    log = tools("sign", "torch-cpu")[1]

    assert "cosign sign --yes r.example/t/gpucheck/torch@sha256:1" in log
    assert "--type cyclonedx --predicate build/images/torch-cpu.cdx.json" in log


def test_a_wrong_step_is_wrong_usage(tools):
    assert tools("paint", "torch-cpu")[0].returncode == 64


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_every_example_is_valid_yaml(path):
    assert yaml.safe_load(path.read_text())


def test_the_workflow_names_every_variant_that_can_be_built_and_every_step():
    workflow = yaml.safe_load((FOLDER / "images.yml").read_text())
    job = workflow["jobs"]["image"]

    assert job["strategy"]["matrix"]["variant"] == [n for n, row in VERSIONS.variants.items() if row.filled.locked]
    ran = " ".join(step.get("run", "") for step in job["steps"])
    assert [step for step in ("build", "test", "scan", "publish", "sign") if f"ci.sh {step} " not in ran] == []


def test_the_job_gives_shared_memory_and_runs_as_nobody_in_particular():
    job = yaml.safe_load((FOLDER / "job.yml").read_text())
    pod = job["spec"]["template"]["spec"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
        assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]
        # Kubernetes' args keep the image's entry point (tini); its command would replace it.
        assert "command" not in container


def test_compose_trains_only_after_the_image_has_proved_itself():
    services = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]

    assert services["train"]["depends_on"]["prove"]["condition"] == "service_completed_successfully"
    assert services["train"]["deploy"] == services["prove"]["deploy"]
    assert services["train"]["healthcheck"]["test"] == ["CMD", "gpucheck", "image", "--quick"]


def test_the_page_links_to_every_example():
    page = (FOLDER.parents[1] / "images.md").read_text()

    for path in FOLDER.iterdir():
        if path.name != "scan_exceptions.py" and path.is_file():
            assert f"integrations/containers/{path.name}" in page
