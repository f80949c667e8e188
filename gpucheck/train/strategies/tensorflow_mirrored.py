"""TensorFlow MirroredStrategy: one process, a copy of the variables on every device, gradients summed between them.

The sums are NCCL's on GPUs. On a machine without GPUs, two logical CPU devices take their place and the sums use plain
copies, which the report states. TensorFlow is imported inside the functions.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from importlib.metadata import distributions
from typing import Any

from gpucheck.model.smoke import CUDA_WHEELS, Checkpoint
from gpucheck.printable import counted
from gpucheck.train import data
from gpucheck.train.models import MODELS, MOMENTUM
from gpucheck.train.progress import Progress, RankDevice, RankReport
from gpucheck.train.session import ONE_DEVICE, Rank, Trained, number, train_and_report
from gpucheck.train.spec import RankPlacement, RankSpec, SmokeOptions, devices_used
from gpucheck.train.strategies import Strategy

STRATEGIES = (
    Strategy(
        framework="tensorflow",
        name="mirrored",
        module=__name__,
        summary="MirroredStrategy, one process for all devices",
        packages=("tensorflow", "numpy"),
        precisions=("fp32", "tf32"),
        default=True,
    ),
)


def mirrored(spec: RankSpec, progress: Progress) -> RankReport:
    """Train on all devices, again on one, and again for the repeat. Raises whatever TensorFlow raises."""
    progress.enter("import")
    import tensorflow as tf

    options = spec.options
    progress.enter("init")
    tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(options.precision == "tf32")
    tf.config.threading.set_inter_op_parallelism_threads(2)
    where, described = place(tf, options)
    names = [device.name for device in described]
    progress.on_device(names[0], None)
    progress.enter("device")
    reducer = tf.distribute.NcclAllReduce if where.placement == "gpus" else tf.distribute.ReductionToOneDevice
    together = tf.distribute.MirroredStrategy(names, cross_device_ops=reducer())
    alone = tf.distribute.OneDeviceStrategy(names[0])
    progress.enter("data")
    samples = data.load(options.data, options.seed)
    rank = Rank(spec, progress, where, described, versions(tf), samples)

    def predict(values: list[Any]) -> Any:
        return _network(tf, options)[1](list(map(tf.constant, values)), tf.constant(samples.held_out_images)).numpy()

    return train_and_report(
        rank,
        {ONE_DEVICE: partial(_train, tf, together, rank)},
        partial(_train, tf, alone, rank),
        predict,
        communication="inside the step (gradients summed between the devices), not measured separately",
    )


def place(tf: Any, options: SmokeOptions) -> tuple[RankPlacement, tuple[RankDevice, ...]]:
    """Where it trains, with the name of the reduction as backend."""
    gpus = tf.config.list_physical_devices("GPU")
    count, build = options.world_size, f"tensorflow {tf.__version__}"
    if len(gpus) >= count:
        # The setting must be the same for all visible GPUs, so those that do not take part are hidden first.
        tf.config.set_visible_devices(gpus[:count], "GPU")
        for gpu in gpus[:count]:
            tf.config.experimental.set_memory_growth(gpu, enable=True)
        models = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus[:count]]
        described = tuple(RankDevice(name=f"GPU:{number}", model=model) for number, model in enumerate(models))
        return RankPlacement("gpus", "nccl", f"{devices_used(count, len(gpus))} for {build}"), described
    kind = "GPU" if gpus else "CPU"
    physical = gpus[0] if gpus else tf.config.list_physical_devices("CPU")[0]
    logical = tf.config.LogicalDeviceConfiguration
    # A logical GPU needs a limit; this test takes a small part of it.
    parts = [logical(memory_limit=1024) if gpus else logical() for _ in range(count)]
    tf.config.set_logical_device_configuration(physical, parts)
    why = f"{build} sees {counted(len(gpus), 'GPU')}: {count} logical devices of one {kind}"
    why += "; NCCL needs a GPU for each, so the sums go through one device"
    where = RankPlacement("shared-gpu" if gpus else "cpu", "reduction to one device", why)
    return where, tuple(RankDevice(name=f"{kind}:{number}") for number in range(count))


def _network(tf: Any, options: SmokeOptions) -> tuple[list[Any], Callable[[list[Any], Any], Any]]:
    model = MODELS[options.model]
    assert model.tensorflow is not None  # noqa: S101 - the plan has rejected it
    return model.tensorflow(tf, options.seed)


def _train(tf: Any, strategy: Any, rank: Rank, _: str, progress: Progress, steps: int) -> Trained:
    options, samples, replicas = rank.options, rank.samples, strategy.num_replicas_in_sync
    values, forward = _network(tf, options)
    progress.enter("broadcast")
    with strategy.scope():
        variables = [tf.Variable(value) for value in values]
        velocities = [tf.Variable(tf.zeros_like(value), trainable=False) for value in values]
    step_of = _step(tf, strategy, forward, variables, velocities, MODELS[options.model].learning_rate)
    made = Trained(initial=values, checkpoints=[Checkpoint(step=0, parameters=_hashes(strategy, variables))])
    warm = 0.0
    for step, chosen in enumerate(rank.plan(steps), start=1):
        progress.enter("load", step)
        parts = [chosen[part::replicas] for part in range(replicas)]
        spread = strategy.experimental_distribute_values_from_function(
            lambda context, parts=parts: tuple(
                tf.constant(of_all[parts[context.replica_id_in_sync_group]])
                for of_all in (samples.images, samples.labels)
            )
        )
        progress.enter("step", step)
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, step_of(spread), axis=None)
        made.losses.append(number(float(loss) / replicas))
        progress.enter("check", step)
        warm = progress.busy() if step == 1 else warm
        if step % options.check_every == 0 or step == steps:
            parameters, state = _hashes(strategy, variables), _hashes(strategy, velocities)
            made.checkpoints.append(Checkpoint(step=step, parameters=parameters, optimizer=state))
    made.final = [strategy.experimental_local_results(variable)[0].numpy() for variable in variables]
    made.seconds = progress.busy() - warm
    return made


def _step(
    tf: Any, strategy: Any, forward: Callable[..., Any], variables: list[Any], velocities: list[Any], rate: float
) -> Callable[[Any], Any]:
    """One compiled step: SGD with momentum, as torch's, on gradients that are summed between the replicas."""

    def move(velocity: Any, variable: Any, gradient: Any) -> None:
        velocity.assign(MOMENTUM * velocity + gradient)
        variable.assign_sub(rate * velocity)

    def update(strategy: Any, velocity: Any, variable: Any, gradient: Any) -> None:
        strategy.extended.update(velocity, move, args=(variable, gradient))

    def replica(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = forward(variables, images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, variables))
        for variable, velocity, gradient in zip(variables, velocities, summed, strict=True):
            context.merge_call(update, args=(velocity, variable, gradient))
        return loss

    compiled: Callable[[Any], Any] = tf.function(lambda spread: strategy.run(replica, args=spread))
    return compiled


def _hashes(strategy: Any, variables: list[Any]) -> tuple[str, ...]:
    copies = [strategy.experimental_local_results(variable) for variable in variables]
    return tuple(
        hashlib.sha256(b"".join(copy[replica].numpy().tobytes() for copy in copies)).hexdigest()
        for replica in range(strategy.num_replicas_in_sync)
    )


def versions(tf: Any) -> dict[str, str | None]:
    """Versions of what took part; of CUDA that of the build, and of the wheels with its libraries."""
    build = tf.sysconfig.get_build_info()
    return {
        "tensorflow": tf.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        CUDA_WHEELS: next((d.version for d in distributions() if d.name.startswith("nvidia-cuda-runtime")), None),
    }
