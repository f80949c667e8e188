"""The ways to train on several devices. Every module here has ``STRATEGIES``; there is no list to keep."""

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Literal, NamedTuple

from gpucheck.model.smoke import check_name

Key = tuple[str, str]


class Strategy(NamedTuple):
    """One way to train with a framework, by the function of its name in its module: ``ddp(spec, progress)``.

    process_per_device: one rank a device; otherwise one process drives all of them.
    level: of ``gpucheck verify``, from which on it is run.
    trains: False for a plain transfer test.
    default: what a framework runs if no strategy is requested. packages: importable names that it needs.
    """

    framework: str
    name: str
    module: str
    summary: str
    packages: tuple[str, ...]
    process_per_device: bool = False
    level: Literal["standard", "full"] = "full"
    trains: bool = True
    precisions: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")
    default: bool = False

    @property
    def check(self) -> str:
        """The name of its findings: ``smoke-ddp``, ``smoke-tensorflow-mirrored``."""
        return check_name(self.framework, self.name)

    @property
    def program(self) -> str:
        """``module:function``, for ``gpucheck.train.rank``."""
        return f"{self.module}:{self.name.replace('-', '_')}"


def all_strategies() -> dict[Key, Strategy]:
    """Every strategy here by framework and name: torch first, defaults first."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    found = sorted(
        chain.from_iterable(module.STRATEGIES for module in modules),
        key=lambda s: (s.framework != "torch", s.framework != "tensorflow", not s.default, s.level, s.name),
    )
    return {(strategy.framework, strategy.name): strategy for strategy in found}


def choose(framework: str, strategy: str | None) -> tuple[Strategy, ...]:
    """What to run for ``--framework`` and ``--strategy``; ``all`` is all, None the framework's own default.

    Raises LookupError with what the framework has.
    """
    strategies = all_strategies().values()
    of_framework = [s for s in strategies if framework in ("all", s.framework)]
    chosen = tuple(s for s in of_framework if (s.default if strategy is None else strategy in ("all", s.name)))
    if not chosen:
        names = ", ".join(dict.fromkeys(s.name for s in of_framework))
        others = [s.framework for s in strategies if s.name == strategy]
        hint = f" {strategy} is a strategy of {' and '.join(others)}." if others else ""
        raise LookupError(f"{framework} has no strategy {strategy}; it has {names}.{hint}")
    return chosen
