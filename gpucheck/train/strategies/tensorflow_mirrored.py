"""TensorFlow MirroredStrategy: one process, a copy of the variables on every device, gradients summed between them.

The sums are NCCL's on GPUs. On a machine without GPUs, two logical CPU devices take their place and the sums use plain
copies, which the report states. TensorFlow is imported inside the functions.
"""

import hashlib
import math
import platform
import time
from collections.abc import Callable
from importlib.metadata import distributions
from typing import Any, NamedTuple

from gpucheck.model.smoke import Checkpoint, Placement, Reference, Repeat
from gpucheck.printable import counted
from gpucheck.train import data
from gpucheck.train.data import DataSet
from gpucheck.train.models import model_named
from gpucheck.train.progress import CUDA_WHEELS, Aside, Progress, RankDevice, RankReport
from gpucheck.train.spec import RankSpec, SmokeOptions, devices_used
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import MOMENTUM

STRATEGY = Strategy(
    framework="tensorflow",
    name="mirrored",
    summary="MirroredStrategy, one process for all devices",
    process_per_device=False,
    level="full",
    packages=("tensorflow", "numpy"),
    precisions=("fp32", "tf32"),
    default=True,
)


class Place(NamedTuple):
    """Where it trains. reducer: how gradients are summed, backend: its name for the report."""

    placement: Placement
    reason: str
    devices: tuple[str, ...]
    described: tuple[RankDevice, ...]
    reducer: Any
    backend: str


class Trained(NamedTuple):
    """A training that is over. fed: hash of what was fed. seconds: of all steps but the first."""

    losses: list[float]
    checkpoints: list[Checkpoint]
    final: list[Any]
    fed: str
    seconds: float


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Train on all devices, again on one, and again for the repeat. Raises whatever TensorFlow raises."""
    progress.enter("import")
    import tensorflow as tf

    options = spec.options
    progress.enter("init")
    tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(options.precision == "tf32")
    tf.config.threading.set_inter_op_parallelism_threads(2)
    where = _place(tf, options)
    progress.on_device(where.devices[0], where.described[0].bus_id)
    progress.enter("device")
    strategy = tf.distribute.MirroredStrategy(where.devices, cross_device_ops=where.reducer)
    progress.enter("data")
    samples = data.load(options.data, options.seed)
    trained = _train(tf, strategy, options, samples, progress, options.steps)
    progress.enter("reference")
    alone = tf.distribute.OneDeviceStrategy(where.devices[0])
    single = _train(tf, alone, options, samples, Aside(progress, "reference"), options.steps)
    accuracy = _accuracy(tf, options, samples, trained.final)
    step = trained.checkpoints[1].step
    again = _train(tf, strategy, options, samples, Aside(progress, "repeat"), step)
    progress.enter("report")
    return RankReport(
        rank=0,
        world_size=1,
        model=options.model,
        backend=where.backend,
        placement=where.placement,
        placement_reason=where.reason,
        devices=where.described,
        data_source=options.data or "synthetic",
        losses=tuple(loss if math.isfinite(loss) else None for loss in trained.losses),
        data_hash=trained.fed,
        checkpoints=tuple(trained.checkpoints),
        accuracy=accuracy,
        held_out=len(samples.held_out_labels),
        references=(_reference(options, trained, single),),
        repeat=Repeat(
            step=step, first=trained.checkpoints[1].parameters[0], second=again.checkpoints[-1].parameters[0]
        ),
        communication="inside the step (gradients summed between the devices), not measured separately",
        seconds=dict(progress.seconds),
        samples=(options.steps - 1) * options.batch_per_rank * len(where.devices),
        samples_seconds=trained.seconds,
        versions=_versions(tf),
    )


def _place(tf: Any, options: SmokeOptions) -> Place:
    gpus = tf.config.list_physical_devices("GPU")
    count, build = options.world_size, f"tensorflow {tf.__version__}"
    if len(gpus) >= count:
        # The setting must be the same for all visible GPUs, so those that do not take part are hidden first.
        tf.config.set_visible_devices(gpus[:count], "GPU")
        for gpu in gpus[:count]:
            tf.config.experimental.set_memory_growth(gpu, enable=True)
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus[:count]]
        names = tuple(f"GPU:{number}" for number in range(count))
        described = tuple(RankDevice(name=n, model=d.get("device_name")) for n, d in zip(names, details, strict=True))
        reason = f"{devices_used(count, len(gpus))} for {build}"
        return Place("gpus", reason, names, described, tf.distribute.NcclAllReduce(), "nccl")
    kind = "GPU" if gpus else "CPU"
    physical = gpus[0] if gpus else tf.config.list_physical_devices("CPU")[0]
    logical = tf.config.LogicalDeviceConfiguration
    # A logical GPU needs a limit; this test takes a small part of it.
    parts = [logical(memory_limit=1024) if gpus else logical() for _ in range(count)]
    tf.config.set_logical_device_configuration(physical, parts)
    names = tuple(f"{kind}:{number}" for number in range(count))
    described = tuple(RankDevice(name=name) for name in names)
    why = f"{build} sees {counted(len(gpus), 'GPU')}: {count} logical devices of one {kind}"
    why += "; NCCL needs a GPU for each, so the sums go through one device"
    reducer = tf.distribute.ReductionToOneDevice()
    return Place("shared-gpu" if gpus else "cpu", why, names, described, reducer, "reduction to one device")


def _network(tf: Any, options: SmokeOptions) -> tuple[list[Any], Callable[[list[Any], Any], Any]]:
    model = model_named(options.model)
    if model.tensorflow is None:
        raise ValueError(f"model {model.name} is available for torch only")
    return model.tensorflow(tf, options.seed)


def _train(tf: Any, strategy: Any, options: SmokeOptions, samples: DataSet, progress: Progress, steps: int) -> Trained:
    values, forward = _network(tf, options)
    order = data.Order(options.seed, len(samples.labels), options.batch_per_rank * options.world_size)
    replicas = strategy.num_replicas_in_sync
    progress.enter("broadcast")
    with strategy.scope():
        variables = [tf.Variable(value) for value in values]
        velocities = [tf.Variable(tf.zeros_like(value), trainable=False) for value in values]
    step_of = _step(tf, strategy, forward, variables, velocities, model_named(options.model).learning_rate)
    fed, losses, seconds = hashlib.sha256(), [], 0.0
    checkpoints = [Checkpoint(step=0, parameters=_hashes(strategy, variables))]
    for step in range(1, steps + 1):
        began = time.monotonic()
        progress.enter("load", step)
        chosen = order.batch(step)
        images, labels = samples.images[chosen], samples.labels[chosen]
        parts = [(images[part::replicas], labels[part::replicas]) for part in range(replicas)]
        spread = strategy.experimental_distribute_values_from_function(
            lambda context, parts=parts: tuple(tf.constant(value) for value in parts[context.replica_id_in_sync_group])
        )
        progress.enter("step", step)
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, step_of(spread), axis=None)
        losses.append(float(loss) / replicas)
        seconds += time.monotonic() - began if step > 1 else 0.0
        progress.enter("check", step)
        fed.update(images.tobytes())
        fed.update(labels.tobytes())
        if step % options.check_every == 0 or step == steps:
            checkpoints.append(
                Checkpoint(step=step, parameters=_hashes(strategy, variables), optimizer=_hashes(strategy, velocities))
            )
    final = [strategy.experimental_local_results(variable)[0].numpy() for variable in variables]
    return Trained(losses, checkpoints, final, fed.hexdigest(), seconds)


def _step(
    tf: Any, strategy: Any, forward: Callable[..., Any], variables: list[Any], velocities: list[Any], rate: float
) -> Callable[[Any], Any]:
    """One compiled step: SGD with momentum, as torch's, on gradients that are summed between the replicas."""
    replicas = strategy.num_replicas_in_sync

    def replica(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = forward(variables, images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, variables)
        context = tf.distribute.get_replica_context()
        for variable, velocity, total in zip(
            variables, velocities, context.all_reduce(tf.distribute.ReduceOp.SUM, gradients), strict=True
        ):
            context.merge_call(_update, args=(velocity, variable, total / replicas, rate))
        return loss

    compiled: Callable[[Any], Any] = tf.function(lambda spread: strategy.run(replica, args=spread))
    return compiled


def _update(strategy: Any, velocity: Any, variable: Any, gradient: Any, rate: float) -> None:
    def move(velocity: Any, variable: Any, gradient: Any) -> None:
        velocity.assign(MOMENTUM * velocity + gradient)
        variable.assign_sub(rate * velocity)

    strategy.extended.update(velocity, move, args=(variable, gradient))


def _hashes(strategy: Any, variables: list[Any]) -> tuple[str, ...]:
    copies = [strategy.experimental_local_results(variable) for variable in variables]
    answers = []
    for replica in range(strategy.num_replicas_in_sync):
        sha = hashlib.sha256()
        for copy in copies:
            sha.update(copy[replica].numpy().tobytes())
        answers.append(sha.hexdigest())
    return tuple(answers)


def _accuracy(tf: Any, options: SmokeOptions, samples: DataSet, final: list[Any]) -> float:
    _, forward = _network(tf, options)
    logits = forward([tf.constant(value) for value in final], tf.constant(samples.held_out_images))
    return float((logits.numpy().argmax(axis=1) == samples.held_out_labels).mean())


def _reference(options: SmokeOptions, trained: Trained, single: Trained) -> Reference:
    apart = max(float(abs(a - b).max()) for a, b in zip(trained.final, single.final, strict=True))
    batch = options.batch_per_rank * options.world_size
    return Reference(
        name="one device with the entire batch",
        max_abs_difference=apart if math.isfinite(apart) else None,
        max_relative_difference=None,
        loss_last=single.losses[-1],
        samples_per_s=round((options.steps - 1) * batch / single.seconds, 1),
    )


def _versions(tf: Any) -> dict[str, str | None]:
    build = tf.sysconfig.get_build_info()
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        CUDA_WHEELS: next((d.version for d in distributions() if d.name.startswith("nvidia-cuda-runtime")), None),
    }
