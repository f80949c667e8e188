"""A healthy result and a plain failure, to be changed one field at a time."""

from msgspec.structs import replace

from gpucheck.model.smoke import Checkpoint, Performance, Reference, Repeat, SmokeFailure, SmokeLimits, SmokeResult

A, B = "a" * 64, "b" * 64
SAME = (A, A)
STEP_5 = Checkpoint(step=5, parameters=SAME, gradients=SAME, optimizer=SAME)
STEP_10 = replace(STEP_5, step=10)

REFERENCE = Reference(
    name="one process with the whole batch",
    max_abs_difference=1e-7,
    max_relative_difference=2e-7,
    loss_last=0.5,
    data_hashes=SAME,
    samples_per_s=1100.0,
)
FAST = Performance(
    samples_per_s=(1000.0, 990.0),
    single_samples_per_s=1100.0,
    scaling_efficiency=0.905,
    shares={"data": 0.1, "forward": 0.3, "backward": 0.4, "communication": 0.15, "optimizer": 0.05},
    straggler_ratio=1.02,
    slowest_rank=1,
    communication="all-reduce that the rank waited for",
)

ON_CPU = SmokeResult(
    framework="torch",
    strategy="ddp",
    model="mlp",
    backend="gloo",
    placement="cpu",
    placement_reason="torch 2.13.0+cpu is a build without CUDA",
    devices=("cpu", "cpu"),
    device_names=(None, None),
    bus_ids=(None, None),
    world_size=2,
    steps=10,
    batch_per_rank=64,
    seed=1,
    losses=(2.0,) * 9 + (0.5,),
    loss_first=2.0,
    loss_last=0.5,
    not_a_number=(),
    accuracy=0.99,
    held_out=512,
    references=(REFERENCE,),
    limits=SmokeLimits(),
    checkpoints=(Checkpoint(step=0, parameters=SAME), STEP_5, STEP_10),
    gradients_differ_from_step=None,
    wrong_data_ranks=(),
    summed_steps=10,
    repeats=(Repeat(step=5, first=A, second=A),) * 2,
    memory_kept_bytes=(4096, 0),
    performance=FAST,
    seconds={"total": 3.0},
    rank_seconds=({}, {}),
    versions={"torch": "2.13.0+cpu", "cuda": None},
)
ON_GPUS = replace(
    ON_CPU,
    backend="nccl",
    placement="gpus",
    placement_reason="2 CUDA devices",
    devices=("cuda:0", "cuda:1"),
    device_names=("Tesla P100-PCIE-16GB",) * 2,
    bus_ids=("0000:3b:00.0", "0000:af:00.0"),
    versions={"torch": "2.7.1+cu126", "cuda": "12.6"},
)
ON_ONE_GPU = replace(
    ON_GPUS,
    backend="gloo",
    placement="shared-gpu",
    placement_reason="1 CUDA device for 2 ranks: they share cuda:0",
    devices=("cuda:0", "cuda:0"),
    bus_ids=("0000:3b:00.0",) * 2,
)
HANG = SmokeFailure(
    framework="torch",
    strategy="ddp",
    kind="hang",
    detail="no rank moved for 30 s, and this rank is behind the others",
    rank=1,
    world_size=2,
    device="cuda:1",
    bus_id="0000:af:00.0",
    step=3,
    steps=40,
    phase="backward",
    stack=('"/x/torch/autograd/graph.py", line 829 in _engine_run_backward',),
    evidence=("rank 0 (cuda:0): step 3 of 40, allreduce for 30.1 s, process state S",),
    seconds=34.0,
)
