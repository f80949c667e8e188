"""Manifests against Kubernetes' own schemas of several releases, and against the policies of strict clusters."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

PAGES = Path(__file__).parents[2] / "docs/integrations"
JOB = PAGES / "kubernetes/smoke-nodes.yaml"
MANIFESTS = (PAGES / "kubernetes/daemonset.yaml", JOB)
# From an old release that clusters still run, and the newest that the schemas are here for.
RELEASES = ("1.29", kubernetes_validate.latest_version())


def documents(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def pod_of(path):
    return documents(path)[-1]["spec"]["template"]["spec"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_holds_to_the_schema(path, release):
    for document in documents(path):
        kubernetes_validate.validate(document, release, strict=True)


def test_the_job_passes_strict_policies():
    """Pod Security "restricted" demands each of these; OpenShift refuses ids outside of a namespace's range."""
    pod = pod_of(JOB)

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all({"emptyDir", "configMap", "persistentVolumeClaim"} & volume.keys() for volume in pod["volumes"])
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_pod_that_takes_every_gpu_unallocated_names_the_runtime():
    """With CDI, GPU Operator's default, the variable alone gives no GPU: NVIDIA's runtime has to read it."""
    pod = pod_of(PAGES / "kubernetes/daemonset.yaml")

    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    assert pod["runtimeClassName"] == "nvidia"
