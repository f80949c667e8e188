"""Container engines: told of the GPUs where they do not know them, and taken back to exactly what the site had."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpucheck.knowledge.packages import packages
from tests.playbooks.modules import Ended, Module, module, shared

engines = shared("engines")
task = module("container_engine")
CTK = Path(__file__).parents[2] / "images/lab/payload/nvidia-ctk"
ROWS = {str(row.name): row for row in packages().container_toolkit.engines}


class Host(Module):
    """Programs are run, nvidia-ctk is the lab's stand-in."""

    def __init__(self, running: tuple[str, ...] = (), check_mode: bool = False) -> None:
        super().__init__({}, check_mode)
        self.running = running
        self.asked: list[list[str]] = []

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(argv)
        if argv[0] == "systemctl":
            return (0 if argv[-1] in self.running else 3), "", ""
        done = subprocess.run([sys.executable, str(CTK), *argv[1:]], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with Docker and a containerd that serves kubelet, and no configuration of either."""
    monkeypatch.setattr(engines, "RECORD", str(tmp_path / "state/engines.json"))
    monkeypatch.setattr(engines.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("GPUCHECK_LAB_ETC", str(tmp_path / "etc"))
    return tmp_path


def plan(host: Path, *names: str) -> dict[str, Any]:
    """The plan's own rows, with the files below the host's folder."""
    rows = []
    for name in names or tuple(ROWS):
        row = {f: getattr(ROWS[name], f) for f in ROWS[name].__struct_fields__}
        rows.append({**row, "files": [str(host / path.lstrip("/")) for path in row["files"]]})
    return {"container_engines": rows}


@pytest.fixture
def docker(host):
    """daemon.json, with what the site has in it."""
    path = host / "etc/docker/daemon.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"log-driver": "journald", "runtimes": {"kata": {"path": "kata-runtime"}}}')
    path.chmod(0o600)
    return path


def test_an_engine_that_is_not_there_is_left_out(host, monkeypatch):
    """containerd without kubelet serves Docker: nothing to do there."""
    monkeypatch.setattr(engines.shutil, "which", lambda name: None if name == "kubelet" else name)
    assert engines.state(plan(host))["missing"] == ["docker"]

    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    assert engines.differences(plan(host)) == []
    assert engines.differences({}) == []


def test_an_engine_without_the_runtime_is_a_difference_and_is_configured_once(host, docker):
    wanted, ansible = plan(host), Host(running=("docker",))
    assert engines.differences(wanted) == [
        "docker is not configured for the runtime nvidia",
        "containerd is not configured for the runtime nvidia",
    ]

    written, services, left = task.make_present(ansible, wanted)

    assert [Path(path).name for path in written] == ["daemon.json", "config.toml", "99-nvidia.toml"]
    # containerd does not run here: it reads its files when it starts.
    assert services == [{"service": "docker", "action": "reloaded"}]
    assert left == []
    content = json.loads(docker.read_text())
    assert content["log-driver"] == "journald"
    assert list(content["runtimes"]) == ["kata", "nvidia"]
    assert "conf.d/*.toml" in (host / "etc/containerd/config.toml").read_text()

    again = Host(running=("docker", "containerd"))
    assert engines.differences(wanted) == []
    assert task.make_present(again, wanted) == ([], [], [])
    assert again.asked == []


def test_what_the_site_configured_itself_is_neither_written_nor_taken_back(host, docker):
    docker.write_text('{"runtimes": {"nvidia": {"path": "/opt/site/nvidia-container-runtime"}}}')
    before = docker.read_bytes()

    assert task.make_present(Host(), plan(host, "docker")) == ([], [], [])
    assert task.make_absent(Host(), {}) == ([], [], [])
    assert docker.read_bytes() == before


def test_without_the_plan_the_files_are_what_they_were(host, docker):
    """Content and mode of the file that was there; the files that were not there are gone."""
    before = docker.read_bytes()
    task.make_present(Host(), plan(host))
    assert engines.left({}) == [
        f"{host / path} contains the runtime nvidia, which is no longer planned"
        for path in ("etc/containerd/conf.d/99-nvidia.toml", "etc/containerd/config.toml", "etc/docker/daemon.json")
    ]
    assert engines.left(plan(host)) == []

    written, services, left = task.make_absent(Host(running=("docker", "containerd")), {})

    assert len(written) == 3
    assert left == []
    assert services == [
        {"service": "containerd", "action": "restarted"},
        {"service": "docker", "action": "reloaded"},
    ]
    assert (docker.read_bytes(), docker.stat().st_mode & 0o777) == (before, 0o600)
    assert list((host / "etc/containerd").rglob("*.toml")) == []
    assert engines.left({}) == []
    assert not Path(engines.RECORD).exists()


def test_what_the_site_has_written_since_is_what_comes_back(host, docker):
    """Its configuration management replaced the file that gpucheck wrote, and a later run added the runtime again."""
    task.make_present(Host(), plan(host, "docker"))
    docker.write_text('{"data-root": "/srv/docker"}')
    task.make_present(Host(), plan(host, "docker"))

    task.make_absent(Host(), {})

    assert json.loads(docker.read_text()) == {"data-root": "/srv/docker"}


class CutOff(Host):
    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        raise KeyboardInterrupt(argv)


def test_a_run_that_was_cut_off_takes_its_own_words_for_nobody_elses(host, docker):
    before = docker.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        task.make_present(CutOff(), plan(host, "docker"))
    docker.write_text("{}")

    task.make_present(Host(), plan(host, "docker"))
    task.make_absent(Host(), {})

    assert docker.read_bytes() == before


def test_a_changed_toml_is_left_to_a_person_and_said_once(host):
    task.make_present(Host(), plan(host, "containerd"))
    main = host / "etc/containerd/config.toml"
    main.write_text(main.read_text() + "# the site's\n")

    _, _, left = task.make_absent(Host(), {})

    assert left == [f"{main} was changed since: remove the runtime nvidia by hand"]
    assert not (host / "etc/containerd/conf.d/99-nvidia.toml").exists()
    assert engines.left({}) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"runtimes": ["nvidia"]}'])
def test_a_configuration_that_is_no_json_is_said_and_not_touched(host, docker, content):
    docker.write_text(content)
    wanted = plan(host, "docker")

    (broken,) = engines.state(wanted)["broken"]
    assert broken.startswith(f"{docker}: ")
    assert engines.differences(wanted) == [f"{broken} cannot be read"]
    assert engines.refusals(wanted)[0].startswith(f"{broken}: the engine does not start with this file")
    assert task.make_present(Host(), wanted) == ([], [], [])
    assert docker.read_text() == content


@pytest.mark.parametrize(
    ("main", "drop_in", "known"),
    [
        ('[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n', "", True),
        ("[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.\"nvidia\"]\n", "", True),
        ('#[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n', "", False),
        ('[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia-legacy]\n', "", False),
        ('imports = ["FOLDER/*.toml"]\n', "[plugins.x.containerd.runtimes.nvidia]\n", True),
        ("version = 2\n", "[plugins.x.containerd.runtimes.nvidia]\n", False),
    ],
)
def test_containerd_knows_the_runtime_where_its_configuration_reaches_it(host, main, drop_in, known):
    (row,) = plan(host, "containerd")["container_engines"]
    for path, content in zip(row["files"], (main, drop_in), strict=True):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content.replace("FOLDER", str(Path(row["files"][1]).parent)))

    assert engines.knows_runtime(row) is known


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, "", "no\nspace left"), "nvidia-ctk runtime configure --runtime docker: exit 1: no space left"),
        ((0, "", ""), "still does not name the runtime nvidia"),
    ],
)
def test_a_tool_that_fails_or_wrote_nothing_is_reported(host, docker, monkeypatch, answer, words):
    ansible = Host()
    monkeypatch.setattr(ansible, "run_command", lambda argv: answer)

    with pytest.raises(Ended, match=words):
        task.make_present(ansible, plan(host, "docker"))
