"""nvidia-modprobe, if requested: creates the device files of the driver for programs without root."""

from typing import Any

from gpucheck.knowledge.packages import options
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.components.driver import COMPONENT as DRIVER
from gpucheck.stack.packages import at_driver_version, component
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason
from gpucheck.stack.versions import request


class NvidiaModprobe(Component):
    """nvidia-modprobe at exactly the driver's version, installed in the same transaction."""

    name = "nvidia_modprobe"
    title = "nvidia-modprobe"
    part = "driver"
    place, turn = 85, 85
    nvidia = SYSTEM
    default = "none"
    optional = True

    def choose(self, choice: Choice) -> Any:
        """Choose the driver's version; reject any other, and archives that are not known to have the package."""
        wanted, driver = choice.spec.nvidia_modprobe, choice.driver.version
        source = ", ".join(options().with_driver[self.name].source)
        if choice.driver.kept and not request(wanted).none:
            return self._clash(
                wanted, f"{self.title} comes with the driver, which is kept as it is", "the specification"
            )
        if choice.archive is not None or choice.spec.source == "ubuntu":
            because = f"the archive of {choice.target.os.id} is not known to have {self.title}"
            return choice.settle(self._clash(wanted, because, source), wanted)
        if not request(wanted).none and not request(wanted).matches(driver):
            because = f"{self.title} is released with the driver, which is {driver}"
            return self._clash(wanted, because, source)
        reason = Reason(component=self.name, because="requested, at the driver's version", source=source)
        return choice.settle((driver, (reason,)), wanted)

    def _clash(self, wanted: str, because: str, source: str) -> Clash:
        facts = (Fact(f"{self.name} is {wanted}", "the specification"), Fact(because, source))
        return Clash(component=self.name, rule="R23", between=facts, because=because)

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        """Return the package; None if the driver's packages include it (the EL family)."""
        if not self.value(plan.stack):
            return None
        drivers = {row["name"] for row in DRIVER.packages(plan)["packages"]}
        names = [name for name in options().with_driver[self.name].packages if name not in drivers]
        return component([at_driver_version(plan.system, plan.stack, name) for name in names])


COMPONENT = NvidiaModprobe()
