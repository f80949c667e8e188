"""Results of scanners, cut down to the keys that are read, and programs that write them.

TRIVY: github.com/aquasecurity/trivy, integration/testdata/debian-buster.json.golden at 015e9a5, with the Python part of
an image. TRIVY_VERSION: aquasecurity/trivy#3743. GRYPE: github.com/anchore/grype,
grype/presenter/json/testdata/snapshot/TestJsonImgsPresenter.golden at 1f52ab3, with the "db" of Grype 0.92.
"""

import copy
import json
from datetime import datetime, timedelta, timezone

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
TRIVY = {
    "SchemaVersion": 2,
    "CreatedAt": "2021-08-25T12:20:30.000000005Z",
    "ArtifactName": "testdata/fixtures/images/debian-buster.tar.gz",
    "ArtifactType": "container_image",
    "Metadata": {"OS": {"Family": "debian", "Name": "10.1"}},
    "Results": [
        {
            "Target": "testdata/fixtures/images/debian-buster.tar.gz (debian 10.1)",
            "Class": "os-pkgs",
            "Type": "debian",
            "Vulnerabilities": [
                {
                    "VulnerabilityID": "CVE-2019-18276",
                    "PkgID": "bash@5.0-4",
                    "PkgName": "bash",
                    "InstalledVersion": "5.0-4",
                    "Status": "affected",
                    "Severity": "LOW",
                },
                {
                    "VulnerabilityID": "CVE-2019-18224",
                    "VendorIDs": ["DSA-4613-1"],
                    "PkgID": "libidn2-0@2.0.5-1",
                    "PkgName": "libidn2-0",
                    "InstalledVersion": "2.0.5-1",
                    "FixedVersion": "2.0.5-1+deb10u1",
                    "Status": "fixed",
                    "Severity": "CRITICAL",
                },
            ],
        },
        {
            "Target": "Python",
            "Class": "lang-pkgs",
            "Type": "python-pkg",
            "Packages": [{"Name": "torch", "Version": "2.13.0+cpu"}, {"Name": "typing_extensions"}],
            "Vulnerabilities": [
                {
                    "VulnerabilityID": "CVE-2024-6345",
                    "PkgName": "setuptools",
                    "InstalledVersion": "69.5.1",
                    "FixedVersion": "70.0.0",
                    "Status": "fixed",
                    "Severity": "HIGH",
                }
            ],
        },
    ],
}
TRIVY_VERSION = {
    "Version": "0.38.0-4-g9a0ceef16",
    "VulnerabilityDB": {
        "Version": 2,
        "NextUpdate": "2023-03-02T06:13:18.804991757Z",
        "UpdatedAt": "2023-03-02T00:13:18.804992157Z",
        "DownloadedAt": "2023-03-02T01:05:39.833036Z",
    },
}
GRYPE = {
    "matches": [
        {
            "vulnerability": {
                "id": "CVE-1999-0001",
                "severity": "Low",
                "fix": {"versions": ["1.2.1", "2.1.3", "3.4.0"], "state": "fixed"},
            },
            "artifact": {"name": "package-1", "version": "1.1.1", "type": "rpm"},
        },
        {
            "vulnerability": {"id": "CVE-1999-0002", "severity": "Critical", "fix": {"versions": [], "state": ""}},
            "artifact": {"name": "package-2", "version": "2.2.2", "type": "deb"},
        },
    ],
    "source": {"type": "image", "target": {"userInput": "user-input"}},
    "distro": {"name": "centos", "version": "8.0", "idLike": ["centos"]},
    "descriptor": {
        "name": "grype",
        "version": "[not provided]",
        "db": {"status": {"schemaVersion": "v6.0.2", "built": "2025-06-04T11:12:37Z", "valid": True}},
    },
}
# A stand-in for each scanner: checks what it is asked, and copies the recorded result to the place that it is told.
PROGRAMS = {
    "trivy": """#!/bin/sh
echo "$PWD $*" >>{folder}/asked
case $1 in
image) while [ $# -gt 1 ]; do if [ "$1" = --output ]; then cp {folder}/result.json "$2"; fi; shift; done ;;
version) cat {folder}/version.json ;;
convert) while [ $# -gt 1 ]; do if [ "$1" = --output ]; then echo '{{"runs": []}}' >"$2"; fi; shift; done ;;
esac
""",
    "grype": """#!/bin/sh
echo "$PWD $*" >>{folder}/asked
for word in "$@"; do
    case $word in
    json=*) cp {folder}/result.json "${{word#json=}}" ;;
    sarif=*) echo '{{"runs": []}}' >"${{word#sarif=}}" ;;
    esac
done
""",
}


def clean_trivy(**system):
    """Trivy's result without a vulnerability that fails."""
    found = copy.deepcopy(TRIVY)
    found["Results"][0]["Vulnerabilities"].pop()
    found["Results"][1].pop("Vulnerabilities")
    found["Metadata"]["OS"].update(system)
    return found


def version_of(days=0.0):
    """Trivy's version document with a database of that many days ago."""
    made = datetime.now(timezone.utc) - timedelta(days=days)
    return {**TRIVY_VERSION, "VulnerabilityDB": {"Version": 2, "UpdatedAt": made.isoformat()}}


def program(folder, kind, result, version=None):
    """Write a scanner that gives this result; returns its path."""
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(result if isinstance(result, str) else json.dumps(result))
    (folder / "version.json").write_text(json.dumps(version or version_of()))
    made = folder / kind
    made.write_text(PROGRAMS[kind].format(folder=folder))
    made.chmod(0o755)
    return made
