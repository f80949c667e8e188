"""Rules about what goes beside the stack only where a site asks for it."""

from collections.abc import Iterator

from gpucheck.knowledge import tables
from gpucheck.knowledge.archives import Archive
from gpucheck.knowledge.options import OptionVersion, options
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.spec import Repository, Wish
from gpucheck.stack.types import Clash, DriverChoice, Fact, Reason, Target
from gpucheck.stack.versions import cc, parse, request

RULE = "R23"
# GDRCopy without a stated version: what the site's repository has newest when it is installed, and held from then on.
NEWEST = "newest"
NEEDED = ("url", "key_url", "key_fingerprint")


def choose_dcgm(
    target: Target, driver: DriverChoice, wanted: str, archive: Archive | None
) -> tuple[str, tuple[Reason, ...]] | Clash:
    """R23: the newest DCGM that a source of its own confirms, or the one that is asked for by version.

    archive: where the driver comes from, None = NVIDIA's repositories, which alone hold DCGM.
    """
    table = options().dcgm
    if archive is not None:
        because = f"the archive of {archive.os} is not known to hold DCGM, and NVIDIA's repository is not mixed with it"
        between = (Fact(f"dcgm is {wanted}, and source is debian", "the wish"), Fact(because, "debian-archive"))
        return Clash(component="dcgm", rule=RULE, between=between, because=because)
    asked = request(wanted)
    fitting = [row for row in table.versions if asked.matches(row.version)]
    # What nothing but one record shows is taken only where no other version is what was asked for.
    found = ([row for row in fitting if not row.unconfirmed] or fitting)[-1:]
    if not found:
        known = ", ".join(row.version for row in table.versions)
        facts = (
            Fact(f"DCGM {wanted} is asked for", "the wish"),
            Fact(f"the tables hold {known}", ", ".join(table.source)),
        )
        return Clash(component="dcgm", rule=RULE, between=facts, because=f"no DCGM {wanted} is known", unknown=True)
    return found[0].version, _dcgm_reasons(target, driver, found[0])


def _dcgm_reasons(target: Target, driver: DriverChoice, row: OptionVersion) -> tuple[Reason, ...]:
    majors = r23_cuda_majors(target, driver)
    text = f"asked for; packages for CUDA {majors[0]}, which is the CUDA major of driver branch {driver.branch}"
    if len(majors) > 1:
        old = next(gpu for gpu in target.models if _is_old(gpu.compute_capability))
        text += f", and for CUDA {majors[1]}: {is_a(old)}, which code for CUDA {majors[0]} does not run on"
    source = ", ".join(options().dcgm.source)
    reasons = [Reason(component="dcgm", because=text, rule=RULE, source=source)]
    if row.unconfirmed:
        text = f"DCGM {row.version} was {row.unconfirmed}"
        reasons.append(Reason(component="dcgm", because=text, rule=RULE, source="public-installers", confirmed=False))
    return tuple(reasons)


def r23_cuda_majors(target: Target, driver: DriverChoice) -> tuple[int, ...]:
    """R23: DCGM's packages are those for the CUDA major of the driver; GPUs older than Turing need those for the
    one before as well.
    """
    floors = tables.drivers().minor_compat_floor.items()
    own = max(int(cuda) for cuda, floor in floors if parse(driver.version) >= parse(floor))
    old = any(_is_old(gpu.compute_capability) for gpu in target.models)
    # CUDA 13 is the first whose code does not run on them.
    return (own, own - 1) if old and own > 12 else (own,)


def _is_old(capability: str) -> bool:
    return cc(capability) < cc(options().dcgm.first_capability)


def r23_gdrcopy(wish: Wish) -> Iterator[Clash]:
    """R23: GDRCopy comes from a repository of the site's, in a stated version or in the newest that is there."""
    asked = request(wish.gdrcopy)
    if asked.none:
        return
    wanted, source = Fact(f"gdrcopy is {wish.gdrcopy}", "the wish"), ", ".join(options().gdrcopy.source)
    repository = wish.repositories.get("gdrcopy", Repository())
    lacking = [key for key in NEEDED if not getattr(repository, key)]
    if lacking:
        fact = Fact("NVIDIA's package repositories are not known to hold GDRCopy", source)
        because = f"GDRCopy needs a repository of the site's, and repositories: gdrcopy lacks {', '.join(lacking)}"
        yield Clash(component="gdrcopy", rule=RULE, between=(wanted, fact), because=because)
    if asked.specifiers:
        fact = Fact("what a repository of the site's holds is not read before it is installed from", "the tables")
        because = "of a range of GDRCopy none can be chosen: state a version, or auto for the newest"
        yield Clash(component="gdrcopy", rule=RULE, between=(wanted, fact), because=because)


def gdrcopy(wish: Wish, archive: Archive | None, why: list[Reason]) -> str | None:
    """The version with its package revision as far as stated, or NEWEST; None = not asked for. Notes its reasons."""
    asked, table = request(wish.gdrcopy), options().gdrcopy
    if asked.none:
        return None
    source = ", ".join(table.source)

    def note(text: str, *, confirmed: bool) -> None:
        why.append(Reason(component="gdrcopy", because=text, rule=RULE, source=source, confirmed=confirmed))

    note("asked for, from the site's own repository; its module is built again after every driver", confirmed=True)
    if asked.auto:
        note("its version is what that repository has newest: it is taken, then held", confirmed=False)
    elif asked.version not in table.seen:
        note(f"the versions read of are {', '.join(table.seen)}", confirmed=False)
    if archive is not None:
        note("that its module builds against the driver of a distribution's own archive was not read", confirmed=False)
    return NEWEST if asked.auto else asked.text
