"""What docs/integrations/containers gives to users: it parses, it names what exists, and steps stop where they must."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpucheck.images.versions import read_versions

FOLDER = Path(__file__).parents[2] / "docs/integrations/containers"
CI = FOLDER / "ci.sh"
VERSIONS = read_versions(FOLDER.parents[2])


@pytest.fixture
def tools(tmp_path):
    """Stand-ins that write down what they are asked; gpucheck answers for one image."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "log"
    for name in ("cosign", "docker", "pytest", "gpucheck"):
        tool = folder / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{ANSWERS.get(name, "")}\n')
        tool.chmod(0o755)

    def run(*words, tag="gpucheck/torch:1-cpu-py312", **environment):
        known = {"PATH": f"{folder}:{os.environ['PATH']}", "TAG": tag, "REGISTRY": "r.example/t", **environment}
        known = {"ARCH": "x86_64", "GIT_DIR": str(FOLDER.parents[2] / ".git"), **known}
        done = subprocess.run(
            ["bash", CI, *words], check=False, capture_output=True, text=True, env=known, cwd=tmp_path
        )
        return done, log.read_text() if log.exists() else ""

    return run


ANSWERS = {
    "gpucheck": """case "$*" in
"image list --format json")
  echo '{"variants": {"a": {"filled": {"locked": true}}, "b": {"filled": {"locked": false}}}}' ;;
image\\ build*) echo "$TAG  1 MB  built" ;;
image\\ scan*) exit ${SCAN:-0} ;;
esac""",
    "docker": r"""case "$*" in
"image ls"*) printf '%s\n' "derived/of-ours:1" "$TAG" ;;
*revision*) echo "${REVISION:-abc}" ;;
*RepoDigests*) printf '%s\n' "other.example/x@sha256:0" "r.example/t/gpucheck/torch@sha256:1" ;;
"manifest inspect"*-arm64) exit 1 ;;
"manifest push"*) echo sha256:2 ;;
history*) printf '%s\n' 1000000 2500000 ;;
"image inspect"*) echo "ubuntu:24.04 sha256:0 | 3.12" ;;
esac""",
}


def test_without_names_every_variant_with_a_lock_is_taken(tools):
    done, log = tools("build")

    assert done.returncode == 0, done.stderr
    assert "gpucheck image build --fresh a\n" in log
    assert "build b" not in log


@pytest.mark.parametrize(("status", "goes_on"), [(0, True), (1, True), (2, False), (3, False)])
def test_the_scan_stops_where_it_fails_and_where_nothing_was_scanned(tools, status, goes_on):
    done, log = tools("scan", "torch-cpu", SCAN=str(status))

    assert (done.returncode == 0) is goes_on
    assert "gpucheck image scan torch-cpu\n" in log


def test_the_scan_uses_the_scanner_that_is_named(tools):
    assert "gpucheck image scan --scanner grype torch-cpu\n" in tools("scan", "torch-cpu", SCANNER="grype")[1]


@pytest.mark.parametrize("scanned", [True, False])
def test_the_summary_has_base_python_size_and_what_the_scan_found(tools, tmp_path, scanned):
    if scanned:
        (tmp_path / "build/images").mkdir(parents=True)
        (tmp_path / "build/images/torch-cpu.scan.json").write_text('{"verdict": "fail"}')
    *_, row = tools("summary", "torch-cpu")[0].stdout.splitlines()

    image = "gpucheck/torch:1-cpu-py312"
    verdict = "fail" if scanned else "not scanned"
    assert row == f"| torch-cpu | {image} | ubuntu:24.04 sha256:0 | 3.12 | 4 | {verdict} |"


def test_the_workflows_scanner_is_pinned_by_checksum_for_both_architectures():
    """Releases 0.69.4 to 0.69.6, and the tags of its actions, were malware."""
    steps = yaml.safe_load((FOLDER / "images.yml").read_text())["jobs"]["image"]["steps"]
    (script,) = [step["run"] for step in steps if "releases/download" in step.get("run", "")]

    assert len(set(re.findall(r"sum=([0-9a-f]{64})\b", script))) == 2
    assert "sha256sum --check --strict" in script
    assert not re.search(r"v0\.69\.[456]", script)
    assert "trivy-action" not in (FOLDER / "images.yml").read_text()


def test_test_runs_the_container_tests_of_the_variant(tools):
    assert "pytest -m images and not gpu tests/images" in tools("test", "torch-cpu")[1]


def test_publish_pushes_a_tag_and_an_immutable_one_and_no_latest(tools):
    done, log = tools("publish", "torch-cpu")

    assert done.returncode == 0, done.stderr
    pushed = re.findall(r"docker push (\S+)", log)
    # Of one architecture each: a tag without one that the next runner overwrites would lose the other's image.
    assert pushed[0] == "r.example/t/gpucheck/torch:1-cpu-py312-amd64"
    assert re.fullmatch(r".*-py312-\d{8}-[0-9a-f]{12}-amd64", pushed[1])
    listed = "r.example/t/gpucheck/torch:1-cpu-py312"
    assert f"docker manifest create --amend {listed} {listed}-amd64\n" in log
    assert f"docker manifest push --purge {listed}\n" in log
    assert "latest" not in log


def test_an_image_on_a_stand_in_base_is_not_published(tools):
    done, log = tools("publish", "torch-cpu", tag="gpucheck/torch:1-cpu-py311-debian12")

    assert done.returncode == 2
    assert "not on the pinned base" in done.stderr
    assert "push" not in log


def test_an_image_of_uncommitted_files_is_not_published(tools):
    done, log = tools("publish", "torch-cpu", REVISION="abc-dirty")

    assert done.returncode == 2
    assert "uncommitted files (abc-dirty)" in done.stderr
    assert "push" not in log


def test_sign_signs_the_digest_and_attests_the_sbom(tools):
    tools("publish", "torch-cpu")
    log = tools("sign", "torch-cpu")[1]

    # Image and list, both of this registry: the engine knows other registries' digests of the same image.
    repository = "r.example/t/gpucheck/torch"
    assert f"cosign sign --yes {repository}@sha256:1 {repository}@sha256:2\n" in log
    assert "--type cyclonedx --predicate build/images/torch-cpu.cdx.json" in log


def test_a_wrong_step_is_wrong_usage(tools):
    assert tools("paint", "torch-cpu")[0].returncode == 64


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_every_example_is_valid_yaml(path):
    assert all(yaml.safe_load_all(path.read_text()))


def test_the_workflow_names_every_variant_that_can_be_built_and_every_step():
    workflow = yaml.safe_load((FOLDER / "images.yml").read_text())
    job = workflow["jobs"]["image"]

    assert job["strategy"]["matrix"]["variant"] == [n for n, row in VERSIONS.variants.items() if row.filled.locked]
    without = [
        n for n, row in VERSIONS.variants.items() if row.filled.locked and "linux/arm64" not in row.filled.platforms
    ]
    assert job["strategy"]["matrix"]["exclude"] == [{"variant": n, "runner": "ubuntu-24.04-arm"} for n in without]
    assert workflow["jobs"]["publish"]["strategy"] == job["strategy"]
    ran = " ".join(step.get("run", "") for part in workflow["jobs"].values() for step in part["steps"])
    assert [
        step for step in ("build", "test", "scan", "summary", "publish", "sign") if f"ci.sh {step} " not in ran
    ] == []


def test_only_the_job_that_publishes_may_write_packages_and_sign():
    jobs = yaml.safe_load((FOLDER / "images.yml").read_text())["jobs"]

    assert "permissions" not in jobs["image"]
    assert jobs["publish"]["permissions"] == {"contents": "read", "packages": "write", "id-token": "write"}
    assert "refs/heads/main" in jobs["publish"]["if"]
    assert "pull_request" in jobs["publish"]["if"]


@pytest.mark.parametrize("name", ["images.yml", "github-tests.yml"])
def test_actions_are_named_by_commit(name):
    """Tags can be moved: those of the scanner's action were, to malware."""
    used = re.findall(r"uses: (\S+)", (FOLDER / name).read_text())

    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("compose-spec", "compose.yml"),
        ("github-workflows", "images.yml"),
        ("github-workflows", "github-tests.yml"),
        ("gitlab-ci", "gitlab-ci.yml"),
    ],
)
def test_an_example_holds_to_the_schema_of_who_reads_it(schema, name):
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", FOLDER / name]
    done = subprocess.run(words, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("status", "goes_on"), [(0, True), (1, True), (2, False), (3, False)])
def test_gitlabs_script_goes_on_after_a_warning_and_only_then(tmp_path, status, goes_on):
    """Its runner ends a script at the first command that fails, so a test of $? on the same line came too late."""
    (tmp_path / "gpucheck").write_text(f"#!/bin/sh\nexit {status}\n")
    (tmp_path / "gpucheck").chmod(0o755)
    prove = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())[".tests"]["script"][0]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    assert (subprocess.run(["sh", "-ec", prove], check=False, env=environment).returncode == 0) is goes_on


def test_the_examples_name_the_python_of_the_pinned_base():
    for name in ("github-tests.yml", "gitlab-ci.yml", "devcontainer.json"):
        named = set(re.findall(r"site/lib/python([\d.]+)/site-packages", (FOLDER / name).read_text()))
        assert named == {VERSIONS.base.python}, name


def test_the_devcontainer_runs_as_a_user_of_the_image():
    text = re.sub(r"^\s*//.*$", "", (FOLDER / "devcontainer.json").read_text(), flags=re.MULTILINE)
    found = json.loads(text)
    users = (FOLDER.parents[2] / "images/common/system-layer").read_text()

    assert f"echo '{found['remoteUser']}:x:1000:1000::/home/any:" in users
    assert found["workspaceMount"].endswith(f"target={found['workspaceFolder']},type=bind")


def test_the_job_mounts_every_volume():
    _, job = yaml.safe_load_all((FOLDER / "job.yml").read_text())
    pod = job["spec"]["template"]["spec"]

    for container in (*pod["initContainers"], *pod["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_job_gives_shared_memory_and_runs_as_nobody_in_particular():
    _, job = yaml.safe_load_all((FOLDER / "job.yml").read_text())
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
    assert services["train"]["healthcheck"]["test"] == ["CMD", "gpucheck", "image", "--level", "quick"]


def test_the_page_links_to_every_example():
    page = (FOLDER.parents[1] / "images.md").read_text()

    for path in FOLDER.iterdir():
        if path.is_file():
            assert f"integrations/containers/{path.name}" in page
