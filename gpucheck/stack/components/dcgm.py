"""DCGM, if the specification requests it."""

from typing import Any

from gpucheck.knowledge import tables
from gpucheck.knowledge.packages import Archive, OptionVersion, options
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.packages import component, package, started
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.rules.libraries import seen_reason, seen_version, stated_exactly
from gpucheck.stack.types import Clash, DriverChoice, Fact, PlanInput, Reason, Reasons, Target
from gpucheck.stack.versions import cc, parse, request

RULE, MAJOR = "R23", 4


def choose_dcgm(
    target: Target, driver: DriverChoice, wanted: str, archive: Archive | None
) -> tuple[str, Reasons] | Clash:
    """R23: DCGM is the newest that a separate source confirms, or the version that is requested."""
    # Without an archive the driver is from NVIDIA's repositories, the only ones with DCGM.
    table = options().dcgm
    if archive is not None:
        because = f"the archive of {archive.os} is not known to hold DCGM, and NVIDIA's repository is not mixed with it"
        stated = Fact(f"dcgm is {wanted}, and source is debian", "the specification")
        between = (stated, Fact(because, "debian-archive"))
        return Clash(component="dcgm", rule=RULE, between=between, because=because)
    requested = request(wanted)
    fitting = [row for row in table.versions if requested.matches(row.version)]
    # A version that only one record shows is chosen only if no other matches the request.
    found = ([row for row in fitting if not row.unconfirmed] or fitting)[-1:]
    if not found:
        seen = seen_version(target.os.repository or "", target, table.packages[:1], wanted, table.revision)
        # The packages of another major have other names.
        version = seen or (stated_exactly(wanted, 3) if requested.prefix[:1] == (MAJOR,) else None)
        if version:
            row = OptionVersion(version=version)
            return version, (*_dcgm_reasons(target, driver, row), seen_reason("dcgm", version, seen=bool(seen)))
        known = ", ".join(row.version for row in table.versions)
        facts = (
            Fact(f"DCGM {wanted} is requested", "the specification"),
            Fact(f"the tables hold {known}", ", ".join(table.source)),
        )
        return Clash(component="dcgm", rule=RULE, between=facts, because=f"no DCGM {wanted} is known", unknown=True)
    return found[0].version, _dcgm_reasons(target, driver, found[0])


def _dcgm_reasons(target: Target, driver: DriverChoice, row: OptionVersion) -> Reasons:
    majors = r23_cuda_majors(target, driver)
    text = f"requested; packages for CUDA {majors[0]}, the CUDA major of driver branch {driver.branch}"
    if len(majors) > 1:
        old = next(gpu for gpu in target.models if _is_old(gpu.compute_capability))
        text += f", and for CUDA {majors[1]}: {is_a(old)}, which code for CUDA {majors[0]} does not run on"
        text += f"; with those for CUDA {majors[1]} alone the pcie test of dcgmi diag fails (NVIDIA/DCGM issue 254)"
    source = ", ".join(options().dcgm.source)
    reasons = [Reason(component="dcgm", because=text, rule=RULE, source=source)]
    if row.unconfirmed:
        text = f"DCGM {row.version} was {row.unconfirmed}"
        reasons.append(Reason(component="dcgm", because=text, rule=RULE, source="public-installers", confirmed=False))
    return tuple(reasons)


def r23_cuda_majors(target: Target, driver: DriverChoice) -> tuple[int, ...]:
    """R23: DCGM's packages are those for the CUDA major of the driver; GPUs older than Turing also need those for
    the major before it.
    """
    floors = tables.drivers().minor_compat_floor.items()
    own = max(int(cuda) for cuda, floor in floors if parse(driver.version) >= parse(floor))
    old = any(_is_old(gpu.compute_capability) for gpu in target.models)
    # CUDA 13 is the first major without code for them.
    return (own, own - 1) if old and own > 12 else (own,)


def _is_old(capability: str) -> bool:
    return cc(capability) < cc(options().dcgm.first_capability)


class Dcgm(Component):
    """Packages for the driver's CUDA major; its service starts after everything that it needs."""

    name = part = "dcgm"
    title = "DCGM"
    place, turn = 70, 70
    nvidia = SYSTEM
    default = "none"
    optional = True

    def choose(self, choice: Choice) -> Any:
        wanted = choice.spec.dcgm
        return choice.settle(choose_dcgm(choice.target, choice.driver, wanted, choice.archive), wanted)

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        """Return the packages and the service; DCGM 3 must not be on the host."""
        if not plan.stack.dcgm:
            return None
        table = options().dcgm
        cuda = r23_cuda_majors(plan.target, plan.stack.driver)
        names = [*table.packages, *(name.format(major=number) for number in cuda for name in table.by_cuda)]
        version = f"{table.epoch}:{plan.stack.dcgm}-{table.revision}"
        return {
            **component([package(plan.system, name, version) for name in names]),
            "services": started([table.service]),
            "refuse": list(table.old),
        }


COMPONENT = Dcgm()
