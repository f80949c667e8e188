"""`gpucheck image scan`: recorded results of both scanners, and what is stated if nothing was scanned."""

import copy
import json
from types import SimpleNamespace

import docker.errors
import jsonschema
import pytest

from gpucheck.cli.schema.documents import schema_of
from gpucheck.images import scan_run
from gpucheck.images.scan import evaluate, read_policy
from gpucheck.images.scanners import ScanError, find_scanner, read_grype, read_trivy
from gpucheck.images.updates import Update
from gpucheck.images.versions import read_versions
from gpucheck.model import Verdict
from tests.images.scan.policies import ROOT
from tests.images.scan.recorded import (
    GRYPE,
    NOW,
    TRIVY,
    TRIVY_VERSION,
    clean_trivy,
    program,
    version_of,
)
from tests.images.test_updates import UPDATES


def test_a_fixable_critical_vulnerability_fails_and_says_what_to_do(checkout, images):
    program(checkout / "bin", "trivy", TRIVY)

    status, out, _ = images("torch-cpu")

    assert status == 2
    assert "FAIL    1 CRITICAL, 1 HIGH of 3 vulnerabilities in torch-cpu" in out
    assert "CRITICAL CVE-2019-18224: libidn2-0 2.0.5-1, fixed in 2.0.5-1+deb10u1" in out
    assert "HIGH CVE-2024-6345: setuptools 69.5.1, fixed in 70.0.0" in out
    assert "bash" not in out
    assert "gpucheck image build --fresh torch-cpu installs the updates of the base" in out
    assert "raise the version in constraints.txt" in out
    assert "gpucheck/torch:2-cpu-py312 (debian 10.1), scanned by trivy 0.38.0-4-g9a0ceef16, database of 20" in out


@pytest.mark.parametrize("kind", ["trivy", "grype"])
def test_an_image_without_one_passes_and_its_results_are_beside_the_build(checkout, images, kind):
    grype = copy.deepcopy(GRYPE)
    grype["descriptor"]["db"]["status"]["built"] = version_of()["VulnerabilityDB"]["UpdatedAt"]
    program(checkout / "bin", kind, clean_trivy() if kind == "trivy" else grype)

    status, out, _ = images()

    assert status == 0, out
    made = checkout / "build/images"
    assert json.loads((made / f"torch-cpu.{kind}.json").read_text())
    assert json.loads((made / "torch-cpu.sarif").read_text()) == {"runs": []}
    assert json.loads((made / "torch-cpu.scan.json").read_text())["verdict"] == "pass"
    assert f"result: {made}/torch-cpu.{kind}.json" in out


def test_the_scanner_is_asked_for_everything_and_its_own_settings_do_not_count(checkout, images):
    """Its list of exceptions has no expiry date, and a file of the working directory would be read."""
    program(checkout / "bin", "trivy", clean_trivy())
    images()
    asked = (checkout / "bin/asked").read_text().splitlines()

    assert "--severity CRITICAL,HIGH,MEDIUM,LOW,UNKNOWN --ignore-unfixed=false --ignorefile /dev/null" in asked[0]
    assert "--image-src docker" in asked[0]
    assert asked[0].endswith(" gpucheck/torch:2-cpu-py312")
    assert all("/gpucheck-" in line.split()[0] for line in asked)


def test_json_holds_every_vulnerability_and_the_policy(checkout, images):
    program(checkout / "bin", "trivy", TRIVY)

    report = json.loads(images("--format", "json")[1])

    jsonschema.validate(report, schema_of("image-scan"))
    assert report["policy"]["severities"] == ["CRITICAL", "HIGH"]
    (image,) = report["images"]
    assert [row["id"] for row in image["scan"]["vulnerabilities"]] == [
        "CVE-2019-18276",
        "CVE-2019-18224",
        "CVE-2024-6345",
    ]
    assert image["pending"] == []


def test_without_a_scanner_the_result_is_unknown_and_names_what_to_install(checkout, images):
    status, out, _ = images(updates=UPDATES)

    assert status == 3
    assert "UNKNOWN there is no scanner: trivy and grype cannot be found" in out
    assert "install trivy (docs/integrations/containers/images.yml has a version with its checksum) or grype" in out
    # What can be known is: the archive's own updates. A warning does not hide that nothing was scanned.
    assert "2 package updates pending, 1 of them security fixes" in out
    assert "libssl3 3.0.15-1 -> 3.0.17-1" in out


def test_pending_security_updates_warn_though_the_scanner_knows_of_none(checkout, images):
    program(checkout / "bin", "trivy", clean_trivy())

    status, out, _ = images(updates=UPDATES)

    assert status == 1
    assert "fix       gpucheck image build --fresh torch-cpu" in out


def test_an_archive_that_does_not_respond_is_no_pass(checkout, images):
    program(checkout / "bin", "trivy", clean_trivy())
    error = docker.errors.ContainerError(None, 100, "sh", "i", b"E: Failed to fetch http://a.example\n")

    status, out, _ = images(updates=error)

    assert status == 3
    assert "E: Failed to fetch http://a.example" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not JSON"),
        ("[]", "a list, not an object"),
        (json.dumps({"SchemaVersion": 3}), "has the schema 3; this gpucheck reads 2"),
    ],
)
def test_a_result_that_cannot_be_read_is_no_pass(checkout, images, text, words):
    program(checkout / "bin", "trivy", text)

    status, out, _ = images()

    assert status == 3
    assert words in out
    assert "Traceback" not in out


def test_a_scanner_that_fails_is_no_pass_and_an_old_result_is_not_taken_for_its_own(checkout, images):
    made = program(checkout / "bin", "trivy", clean_trivy())
    images()
    made.write_text("#!/bin/sh\necho 'FATAL init error: DB error: failed to download vulnerability DB' >&2\nexit 1\n")

    status, out, _ = images()

    assert status == 3
    assert "trivy exited 1" in out
    assert "failed to download vulnerability DB" in out
    assert not (checkout / "build/images/torch-cpu.trivy.json").exists()


@pytest.mark.parametrize(
    ("result", "version", "words"),
    [
        (clean_trivy(), version_of(8), "its database is of 20"),
        (clean_trivy(), {"Version": "0.74.0"}, "date of its database unknown"),
        (clean_trivy(EOSL=True), None, "debian 10.1 is out of support"),
        ({**clean_trivy(), "Results": clean_trivy()["Results"][1:]}, None, "recognized no operating system"),
        ({**clean_trivy(), "Results": clean_trivy()["Results"][:1]}, None, "found no torch in the image's Python"),
        ({"SchemaVersion": 2}, None, "recognized no operating system"),
    ],
)
def test_what_the_scanner_could_not_see_is_no_pass(checkout, images, result, version, words):
    program(checkout / "bin", "trivy", result, version)

    status, out, _ = images()

    assert status == 3
    assert words in out


def test_a_named_scanner_is_the_one(checkout, images, tmp_path):
    made = program(tmp_path / "elsewhere", "grype", GRYPE)

    status, out, _ = images("--scanner", str(made))

    assert status == 3  # its database is of 2025
    assert "grype [not provided]: its database is of 2025-06-04" in out
    assert "(centos 8.0)" in out


def test_a_program_that_is_no_scanner_is_not_run():
    with pytest.raises(ScanError, match="sh is neither trivy nor grype"):
        find_scanner("sh")


def test_the_newest_image_of_the_variant_is_scanned_and_no_derived_one(checkout, images):
    program(checkout / "bin", "trivy", clean_trivy())

    assert "gpucheck/torch:new," in images(tags=("gpucheck/torch:new", "gpucheck/torch:old"))[1].replace(" (", ",")


@pytest.mark.parametrize(
    ("names", "words"), [(("tensorflow-cpu",), "no image of tensorflow-cpu is built"), ((), "no image is built")]
)
def test_an_image_that_is_not_built_is_named(checkout, images, names, words):
    status, _, err = images(*names, tags=())

    assert status == 3
    assert words in err
    assert "do: gpucheck image build" in err


def test_an_unknown_variant_is_wrong_usage(checkout, images):
    status, _, err = images("torch-cpus")

    assert status == 64
    assert "Did you mean torch-cpu?" in err


def test_grype_before_and_since_its_database_version_6():
    new, old = read_grype(GRYPE), copy.deepcopy(GRYPE)
    old["descriptor"]["db"] = {"built": "2024-01-01T01:02:03Z", "schemaVersion": 5}

    assert [one.fixed for one in new.vulnerabilities] == ["1.2.1, 2.1.3, 3.4.0", None]
    assert [one.severity for one in new.vulnerabilities] == ["LOW", "CRITICAL"]
    assert (new.database.year, read_grype(old).database.year) == (2025, 2024)
    assert read_grype({"matches": [], "ignoredMatches": [{}, {}]}).ignored == 2


def test_trivys_version_document_gives_the_databases_date():
    found = read_trivy(TRIVY, TRIVY_VERSION)

    assert (found.version, found.database.isoformat()) == (
        "0.38.0-4-g9a0ceef16",
        "2023-03-02T00:13:18.804992+00:00",
    )
    assert found.python == ("torch", "typing-extensions")
    assert read_trivy(TRIVY, {"VulnerabilityDB": {"UpdatedAt": "0001-01-01T00:00:00Z"}}).database is None


def test_updates_that_are_no_security_fixes_pass():
    found = Update("zlib1g", "1", "2", "Debian:12.15/oldstable [amd64]")
    variant = read_versions(ROOT).variant("torch-cpu")

    *_, last = evaluate("torch-cpu", variant, read_policy(ROOT), ScanError("none", "install one"), [found], NOW)

    assert (last.verdict, last.seen) == (Verdict.PASS, "1 package update pending, 0 of them security fixes")


def test_a_scanner_that_hangs_is_ended(checkout, images, monkeypatch):
    made = program(checkout / "bin", "trivy", clean_trivy())
    made.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("gpucheck.images.scanners.SECONDS", 1)

    status, out, _ = images()

    assert status == 3
    assert "trivy ran for more than" in out


def test_the_run_is_over_images_of_this_engine():
    assert scan_run.tag_of(SimpleNamespace(images=SimpleNamespace(list=lambda filters: [])), "torch-cpu") is None
