"""Run short training jobs on all GPUs, each rank in its own process."""

from gpucheck.train.smoke import (
    gpus_to_train_on,
    has_switch,
    mig_instances,
    real_gpus,
    run_smoke,
    whole_gpus,
)
