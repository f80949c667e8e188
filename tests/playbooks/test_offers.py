"""repositories: managed on a host: whether its own sources hold what the plan installs, and which of it they lack."""

import copy

import pytest

from tests.playbooks.hostile import Site, state
from tests.playbooks.modules import shared
from tests.playbooks.planned import PLAN, VERSION

offers, plan_code = shared("offers"), shared("host_plan")
files = shared("readers.files")

# As apt 2.6 prints it.
MADISON = f"""nvidia-dkms-580 | {VERSION} | https://mirror.example.org/ubuntu2204/x86_64  Packages
nvidia-dkms-580 | 580.95.05-0ubuntu1 | https://mirror.example.org/ubuntu2204/x86_64  Packages
 libnccl2 | 2.28.9-1+cuda12.9 | https://mirror.example.org/ubuntu2204/x86_64  Packages
 libnccl2 | 2.12.12-1 | http://archive.example.org/ubuntu jammy/multiverse Sources
"""
EL = {
    "package_manager": "dnf",
    "module_stream": {"module": "nvidia-driver", "stream": "580-open"},
    "components": {
        "driver": {
            "packages": [
                {"name": "nvidia-driver-cuda", "version": "3:580.178.04-1.el9", "spec": "nvidia-driver-cuda-3:580..."},
                {"name": "libnccl", "version": "2.28.9-1+cuda13.0", "spec": "libnccl-2.28.9-1+cuda13.0"},
            ],
            "holds": [],
        }
    },
}
REPOQUERY = (
    "libnccl 0:2.27.5-1+cuda12.9\nlibnccl 0:2.28.9-1+cuda13.0\nnvidia-driver-cuda 3:580.95.05-1.el9\n"
    "nvidia-driver-cuda 3:580.178.04-1.el9\n"
)
# As dnf 4.14 prints it, without its heading lines.
STREAMS = (
    "nvidia-driver    580-dkms   default   Nvidia driver\nnvidia-driver    580-open   default [d]   Nvidia driver\n"
)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Ask with a plan and what programs answer; .argvs on the function are what they were asked."""
    monkeypatch.setattr(plan_code, "MODULES_D", str(tmp_path))

    def command(argv):
        run.argvs.append(argv)
        word = next(word for word in ("madison", "repoquery", "module", "update") if word in argv)
        answer = run.answers.get(word, "")
        if isinstance(answer, Exception):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer

    def run(plan, packages=None, **answers):
        run.argvs, run.answers = [], answers
        return offers.query_missing(plan, packages or {}, plan["components"])

    monkeypatch.setattr(offers, "command", command)
    return run


def test_versions_that_a_source_holds_are_offered(ask):
    plan = copy.deepcopy(PLAN)
    plan["components"]["nccl"]["packages"][0]["version"] = "2.28.9-1+cuda12.9"

    assert ask(plan, madison=MADISON) == ([], "")
    assert not any("update" in argv for argv in ask.argvs)


def test_what_no_source_has_is_named_with_what_there_is(ask):
    """Asked once more with fresh lists first: those of the host may be old."""
    missing, unknown = ask(PLAN, madison=MADISON)

    assert missing == ["libnccl2=2.29.3-1+cuda12.9 (offered: 2.28.9-1+cuda12.9)"]
    assert unknown == ""
    assert any("update" in argv for argv in ask.argvs)


def test_fresh_lists_may_have_it(ask):
    fresh = MADISON + "libnccl2 | 2.29.3-1+cuda12.9 | https://mirror.example.org/ubuntu2204/x86_64  Packages\n"

    assert ask(PLAN, madison=["", fresh]) == ([], "")


def test_what_is_installed_as_planned_need_not_be_offered(ask):
    installed = {"nvidia-dkms-580": VERSION, "libnccl2": "2.29.3-1+cuda12.9"}

    assert ask(PLAN, installed) == ([], "")
    assert ask.argvs == []


def test_a_source_that_does_not_answer_is_no_answer(ask):
    failed = files.Unreadable("apt-get: exit 100: E: The repository is not signed")

    assert ask(PLAN, madison="", update=failed) == ([], str(failed))


def test_dnf_is_asked_for_versions_and_the_stream(ask):
    assert ask(EL, repoquery=REPOQUERY, module=STREAMS) == ([], "")
    assert any("--setopt=*.module_hotfixes=1" in argv for argv in ask.argvs)


@pytest.mark.parametrize(
    "streams", ["nvidia-driver  580-open-x  \n", files.Unreadable("Error: No matching Modules to list")]
)
def test_a_stream_that_no_source_has_is_named(ask, streams):
    missing, unknown = ask(EL, repoquery=REPOQUERY.replace("580.178.04", "580.159.03"), module=streams)

    assert missing == [
        "module stream nvidia-driver:580-open",
        "nvidia-driver-cuda-3:580... (offered: 3:580.159.03-1.el9, 3:580.95.05-1.el9)",
    ]
    assert unknown == ""


def test_a_package_of_any_version_is_missing_only_if_there_is_none(ask):
    plan = {
        **EL,
        "module_stream": None,
        "components": {"dcgm": {"packages": [{"name": "x", "version": None, "spec": "x"}]}},
    }

    assert ask(plan, repoquery="x 0:1-1\n") == ([], "")
    assert ask(plan, repoquery="") == (["x (no version is offered)"], "")


@pytest.mark.slow
def test_a_host_whose_sources_do_not_answer_is_refused_before_anything_changes(tmp_path):
    """Sources that lack a package: lab/test_bare_metal_sites."""
    site = Site(tmp_path, {})
    (tmp_path / "stack.yml").write_text("repositories: managed\n")
    found = state({"nccl": ["libnccl2 is missing"]})
    offered = {"offers_missing": [], "offers_unknown": "apt-get: exit 100"}
    site.host("lacks", plan_state=[found, {**found, "host": {**found["host"], **offered}}])
    site.host("holds")

    done = site.run("provision.yml", "--skip-tags", "verify")

    words = "it is unknown whether the package sources of this host have the planned packages: apt-get: exit 100."
    assert words in " ".join(done.stdout.split()), done.stdout + done.stderr
    assert site.document("reports/provision.json")["hosts"]["lacks"]["state"] == "refused"
    assert not {"package_sources", "planned_packages"} & set(site.asked("lacks"))
    # The controller does not look: it may see other sources than the hosts.
    assert "TASK [Compare the plans with the package repositories]" not in done.stdout
