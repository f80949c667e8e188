"""GDRCopy from your own repository, if the specification requests it."""

from collections.abc import Iterator
from typing import Any

from gpucheck.knowledge.packages import Archive, options, packages
from gpucheck.stack.components.base import MANAGED, Choice, Component, Works
from gpucheck.stack.packages import component, package, repository, started
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason, StackSet, StackSpec, Target
from gpucheck.stack.versions import request

RULE = "R23"
GDRDRV = "/etc/modules-load.d/gpucheck-gdrdrv.conf"
ADVICE = (
    "build its packages with the project's own scripts (build-deb-packages.sh, build-rpm-packages.sh) or take "
    "prebuilt ones, put them into your own signed repository, and name it in stack.yml: repositories: gdrcopy: "
    "{url, key_url, key_fingerprint}; or gdrcopy: none"
)
# GDRCopy without a stated version: the newest of the repository when it is installed, held from then on.
NEWEST = "newest"
NEEDED = ("url", "key_url", "key_fingerprint")


def r23_gdrcopy(spec: StackSpec) -> Iterator[Clash]:
    """R23: GDRCopy comes from your own repository, in a stated version or in the newest of that repository."""
    requested = request(spec.gdrcopy)
    if requested.none:
        return
    wanted, source = Fact(f"gdrcopy is {spec.gdrcopy}", "the specification"), ", ".join(options().gdrcopy.source)
    repository = spec.repositories.get("gdrcopy")
    lacking = [key for key in NEEDED if not getattr(repository, key, None)]
    if lacking and MANAGED not in spec.repositories:
        fact = Fact("NVIDIA's package repositories are not known to hold GDRCopy", source)
        because = f"GDRCopy needs your own repository, and repositories: gdrcopy lacks {', '.join(lacking)}"
        yield Clash(component="gdrcopy", rule=RULE, between=(wanted, fact), because=because)
    if requested.specifiers:
        fact = Fact("the contents of your own repository are not read before the installation", "the tables")
        because = "a range of GDRCopy versions cannot be resolved: state a version, or auto for the newest"
        yield Clash(component="gdrcopy", rule=RULE, between=(wanted, fact), because=because)


def choose_gdrcopy(spec: StackSpec, archive: Archive | None, why: list[Reason]) -> str | None:
    """Return the version with its package revision as far as stated, or NEWEST; None = not requested.

    Appends the reasons to ``why``.
    """
    requested, table = request(spec.gdrcopy), options().gdrcopy
    if requested.none:
        return None
    source = ", ".join(table.source)

    def note(text: str, *, confirmed: bool) -> None:
        why.append(Reason(component="gdrcopy", because=text, rule=RULE, source=source, confirmed=confirmed))

    note("requested, from your own repository; its module is rebuilt after every driver", confirmed=True)
    if requested.auto:
        note("its version is the newest of that repository: it is installed, then held", confirmed=False)
    elif requested.version not in table.seen:
        note(f"the versions known from sources are {', '.join(table.seen)}", confirmed=False)
    if archive is not None:
        note("no source shows that its module builds against the driver of a distribution's archive", confirmed=False)
    return NEWEST if requested.auto else requested.text


class Gdrcopy(Component):
    """GDRCopy, at a version of your own repository."""

    name = part = "gdrcopy"
    title = "GDRCopy"
    place, turn = 80, 80
    default = "none"
    optional = True

    def contradictions(self, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
        """DKMS builds its module with headers, which a driver with modules from Ubuntu's archive does not bring."""
        if spec.source == "ubuntu" and not request(spec.gdrcopy).none:
            text = "DKMS builds its module, and with source: ubuntu nothing is built on the hosts. Set gdrcopy: none"
            yield ("source", self.name), text

    def host_clashes(self, target: Target, spec: StackSpec, archive: Archive | None) -> Iterator[Clash]:
        yield from r23_gdrcopy(spec)

    def choose(self, choice: Choice) -> Any:
        return choose_gdrcopy(choice.spec, choice.archive, choice.reasons)

    def exact(self, stack: StackSet) -> str:
        return "auto" if stack.gdrcopy == NEWEST else stack.gdrcopy or "none"

    def label(self, stack: StackSet) -> str | None:
        return f"{stack.gdrcopy}, from your own repository" if stack.gdrcopy else None

    def advice(self, rule: str, target: Target, spec: StackSpec, works: Works) -> str | None:
        return ADVICE

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        """Return the packages, the file that loads the module at boot, and the service that creates the device."""
        wanted = plan.stack.gdrcopy
        if not wanted:
            return None
        table, manager = options().gdrcopy, "apt" if plan.apt else "dnf"
        names, module_package = table.apt if plan.apt else table.dnf, table.module_packages[manager]
        words = {module_package: table.module_word.get(manager, "")}
        rows = [package(plan.system, name, _package_version(wanted, words.get(name, ""))) for name in names]
        boot = {"path": GDRDRV, "content": f"{table.module}\n", "mode": "0644"}
        return {
            **component(rows),
            "services": started(table.services.get(manager, ())),
            "files": [boot],
            "modules": [{"name": table.module, "package": module_package, "device": table.device}],
        }

    def repository(self, plan: PlanInput) -> dict[str, str | None] | None:
        if not plan.stack.gdrcopy:
            return None
        keyring = "/usr/share/keyrings/gdrcopy.gpg" if plan.apt else None
        return repository("gdrcopy", "", ("", None), keyring, packages().repositories.signed)

    def notes(self, plan: PlanInput) -> Iterator[Reason]:
        wanted = plan.stack.gdrcopy
        if wanted and wanted != NEWEST and not request(wanted).package_revision:
            table = options().gdrcopy
            text = f"package revision -{table.revision} is assumed: state yours, for example gdrcopy: 2.5.1-1.el9"
            yield Reason(component=self.name, because=text, source=", ".join(table.source), confirmed=False)


def _package_version(wanted: str, word: str) -> str | None:
    """Return the version of a package: ``2.5.1-1.el9`` with ``dkms`` is ``2.5.1-1dkms.el9``."""
    if wanted == NEWEST:
        return None
    revision = request(wanted).package_revision or options().gdrcopy.revision
    number = len(revision) - len(revision.lstrip("0123456789"))
    return f"{request(wanted).version}-{revision[:number]}{word}{revision[number:]}"


COMPONENT = Gdrcopy()
