"""Plan the runs that the options request, or reject the options before any rank starts. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpucheck.model.smoke import NVLS, SmokeLimits
from gpucheck.printable import counted
from gpucheck.train.models import MODELS
from gpucheck.train.spec import MIN_STEPS, TOLERANCE, SmokeOptions, unsupported
from gpucheck.train.strategies import Strategy, choose

# MNIST's digits overlap as the synthetic classes do not: more steps, and a level that a small network reaches in them.
REAL_DATA_STEPS, REAL_DATA_ACCURACY = 200, 0.8
MOST_RANKS = 16  # their batches together are half of the synthetic set


def read_devices(text: str | None, uuids: Sequence[str]) -> tuple[str | None, int]:
    """CUDA_VISIBLE_DEVICES for the ranks, None for the caller's, and how many ranks or devices.

    text: ``0,1``, UUIDs, ``0,0`` (two ranks share a GPU) or ``cpu,cpu``; None is two of whatever there is.
    uuids: of the host's GPUs in PCI order. Raises ValueError with the devices of the host.
    """
    if text is None:
        return None, 2
    names, chosen = [name.strip() for name in text.split(",")], list[str]()
    if "cpu" in names and set(names) != {"cpu"}:
        raise ValueError(
            f"--devices {text}: CPU ranks and GPUs cannot be combined. Use --devices cpu,cpu, or only GPUs."
        )
    for name in names if "cpu" not in names else ():
        found = [
            str(number)
            for number, uuid in enumerate(uuids)
            if name == str(number) or (len(name) > 7 and uuid.startswith(name))
        ]
        if len(found) != 1:
            there, instead = "this host has no GPU", "Use --devices cpu,cpu for two CPU ranks."
            if uuids:
                there = f"this host has {counted(len(uuids), 'GPU')}, 0 to {len(uuids) - 1}"
                instead = "Use one of them, or cpu,cpu for two CPU ranks."
            wrong = f"there is no device {name or 'without a name'}"
            raise ValueError(f"--devices {text}: {wrong}; {there}. {instead}")
        chosen += found
    if len(names) < 2:
        raise ValueError(f"--devices {text}: training needs two devices. {text},{text} lets two ranks share it")
    return ",".join(dict.fromkeys(chosen)), len(names)


def plan(
    framework: str,
    strategy: str | None,
    options: SmokeOptions,
    *,
    steps: int | None,
    capabilities: Iterable[str | None],
) -> tuple[tuple[Strategy, SmokeOptions], ...]:
    """Return every requested run with its strategy. options: model, precision, data and so on, the same for all runs.

    steps None: enough for the model and the data. capabilities: of the GPUs that will train, None for a CPU.
    Raises LookupError or ValueError with a complete sentence: what is invalid, and what is valid.
    """
    strategies = choose(framework, strategy)
    model = MODELS[options.model]
    for capability in capabilities:
        problem = unsupported(options.precision, capability)
        if problem is not None:
            raise ValueError(f"--precision {options.precision}: {problem}.")
    least = max(MIN_STEPS, model.learns_in)
    if steps is not None and steps < least:
        raise ValueError(f"--steps {steps}: {model.name} needs {least} steps or more to show that it learns.")
    chosen = steps or (REAL_DATA_STEPS if options.data else max(SmokeOptions().steps, least))
    limits = SmokeLimits(
        parameter_tolerance=TOLERANCE[options.precision] * model.rounding,
        accuracy_min=REAL_DATA_ACCURACY if options.data else SmokeLimits().accuracy_min,
    )
    reasons = [_why_not(each, options) for each in strategies]
    fitting = [each for each, reason in zip(strategies, reasons, strict=True) if reason is None]
    if not fitting or (framework != "all" and len(fitting) < len(strategies)):
        raise ValueError(next(filter(None, reasons)))
    return tuple(
        (each, _with_batch(replace(options, framework=each.framework, strategy=each.name, steps=chosen, limits=limits)))
        for each in fitting
    )


def on_all_gpus(
    runs: Iterable[tuple[Strategy, SmokeOptions]], gpus: int, *, nvls: bool
) -> Iterator[tuple[Strategy, SmokeOptions]]:
    """Yield the runs, those with one rank a device on all GPUs unless devices or hosts were chosen.

    gpus: real ones that the framework may use, 0 for a run on CPUs. nvls: the switch of these GPUs can sum; the default
    strategy then runs once more with it.
    """
    for strategy, options in runs:
        everywhere = strategy.process_per_device and options.visible_devices is None and options.nodes is None
        if not everywhere or gpus <= options.world_size:
            yield strategy, options
            continue
        whole = _with_batch(replace(options, world_size=min(gpus, MOST_RANKS)))
        yield strategy, whole
        if nvls and strategy.default and not options.variant:
            yield strategy, replace(whole, variant=NVLS)


def _with_batch(options: SmokeOptions) -> SmokeOptions:
    most = MODELS[options.model].largest_batch // options.world_size
    return replace(options, batch_per_rank=max(1, min(options.batch_per_rank, most)))


def _why_not(strategy: Strategy, options: SmokeOptions) -> str | None:
    """Return why a strategy cannot run with these options and what can; None if it can."""
    name = f"{strategy.framework} {strategy.name}"
    if strategy.framework == "tensorflow" and MODELS[options.model].tensorflow is None:
        names = " or ".join(model.name for model in MODELS.values() if model.tensorflow is not None)
        return f"--model {options.model}: {name} has {names}. Choose one, or add --framework torch."
    if options.precision not in strategy.precisions and strategy.trains:
        usable = " or ".join(strategy.precisions)
        return f"--precision {options.precision}: {name} has {usable}. Choose one, or another strategy."
    if options.nodes is not None and not strategy.process_per_device:
        return f"--nodes: {name} is one process on one host. Use ddp or fsdp on several hosts."
    return None
