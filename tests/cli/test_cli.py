"""What people type: help and wrong usage."""

import pytest

H100 = "--simulate hgx-h100-x8"
P100 = "--simulate p100-pcie-x2"
BURN_IN = f"compute --level burn-in {P100} --duration"
# What is typed, and what the message has.
WRONG = {
    "nonsense": "",
    "verify --format jnuit": "",
    "verify --only nvlnk": "Did you mean nvlink?",
    "verify --only compute-matrix": "part of the step compute. Name compute instead.",
    "verify --fault nouveau": "",
    "verify --simulate hgx-h100": "",
    "verify --only driver --skip driver": "",
    f"verify --from x {H100}": "",
    f"verify {H100} {P100}": "",
    "fleet report does-not-exist": "",
    "fleet report . --write fleet.doc": ".prom",
    "record": "",
    "record -o /": "",
    "schema reprot": "Did you mean report?",
    "image build torch-cpus": "Did you mean torch-cpu?",
    "image context torch-cpus": "Did you mean torch-cpu?",
    "stack resolve --from x --gpu H200 --os ubuntu-22.04": "",
    "stack check --from x --import-torch": "",
    "simulate": "no machine to simulate",
    "simulate p100-pcie-x3 -- true": "Did you mean p100-pcie-x2?",
    "simulate p100-pcie-x2 --fault nope -- true": "unknown fault 'nope'",
    "simulate p100-pcie-x2 --fault=gpu-lost:gpu=5 -- true": "there is no GPU 5",
    "simulate p100-pcie-x2 --": "no command to run",
    "simulate p100-pcie-x2 --fault": "requires an argument",
    "simulate no-such.yml -- true": "no-such.yml: cannot be read: No such file",
    "simulate no-gpu -o /proc/nowhere -- true": "Choose a writable directory",
    "topo --nonsense": "",
    "topo --import": "",
    "topo surplus": "",
    "topo --format yaml": "",
    "topo --import x --simulate dgx2-v100": "",
    "topo --import x --from x": "",
    "topo --from does-not-exist": "",
    "topo --from /": "",
    "topo --fault nouveau": "",
    "topo --best 0": "",
    "topo --best two": "",
    f"topo {P100} --best 3": "a job of 3 GPUs does not fit on 2",
    f"bandwidth {P100} --devices 0,1,0": "is named twice",
    f"bandwidth {P100} --devices 7": "--devices: '7': ",
    f"bandwidth {P100} --sizes 12Q": "'12Q' is not a size",
    f"bandwidth {P100} --sizes 1M,NaN": "'NaN' is not a size",
    f"bandwidth {P100} --tensor 10000": "Write ROWSxCOLUMNS, for example 10000x10000",
    f"network {H100} --nics mlx5_2,mlx5_9": "Error: --nics mlx5_9: This host has no such RDMA device. It has: mlx5_0 (",
    "collectives --ranks 99999999": "",
    f"{BURN_IN} 5m": "outside 10m to 48h",
    f"{BURN_IN} soon": "Write 10m, 12h or 1h30m",
    f"{BURN_IN} 10m --max-temperature nan": "",
    f"compute {P100} --duration 10m": "require --level burn-in",
    "smoke --steps 9 --framework torch": "needs 10 steps or more",
    "smoke --steps many": "not a valid integer",
    "smoke --timeout 0": "1.0<=x<=86400.0",
    "smoke --timeout nan": "'nan' is not a number",
    "smoke --framework jax": "'torch'",
    "smoke --strategy zero": "'ddp'",
    "smoke --framework torch --strategy mirrored": "torch has no strategy mirrored; it has ddp",
    "smoke --framework torch --fault rank-hang": "requires --simulate PROFILE",
    "smoke --framework torch --simulate no-gpu --devices 0,1": "this host has no GPU. Use --devices cpu,cpu",
    "smoke --framework torch --devices cpu": "needs two devices",
    "smoke --framework torch --model cnn --steps 20": "cnn needs 40 steps",
    f"smoke --framework torch {P100} --precision bf16": "this GPU has 6.0: take fp32 or fp16",
    f"smoke --framework torch {P100} --devices 1,2": "there is no device 2; this host has 2 GPUs, 0 to 1",
    "isolate": "no nodes",
    "isolate --simulate-fleet nodes=9 --nodes a,b": "draws its own",
    "isolate --nodes a,b --sizes x": "--sizes",
    "isolate --nodes a,b --expected nan": "not a number",
    "isolate --nodes a,b --switches /nonexistent": "/nonexistent",
    "isolate --inventory /nonexistent": "nonexistent",
    "explain acs-redirct": "Did you mean acs-redirect",
    "explain kernel-lgo": "Did you mean kernel-log",
    "explain gpu.power-limit-lowerd": "Did you mean gpu.power-limit-lowered",
    "explain xid:12345": "xid:12345: not in the table",
    "explain xid:": "not in the table",
    "explain xid:\u00b2": "not in the table",
    "explain sxid:99": "sxid:99: not in the table",
    "explain cuda:12345": "not in the table",
    "explain nvml:x": "not in the table",
    "explain 802": "Did you mean cuda:802 (cudaErrorSystemNotReady)?",
    "explain nonsense": "unknown cause, check",
    "explain normal:H10O": "Did you mean NVIDIA H100",
    "explain normal:Tesla T4": "no public measurement",
    "explain NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.": "gpucheck diagnose",
}


@pytest.mark.parametrize(("line", "words"), WRONG.items())
def test_wrong_usage_is_64_and_one_clear_message(run, monkeypatch, line, words):
    """64, because click's own 2 would read as FAIL."""
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    status, out, err = run(*line.split())

    assert (status, out) == (64, "")
    assert "Error: " in err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("group", ["stack", "fleet", "bundle"])
def test_group_without_a_subcommand_prints_its_help(group, run):
    status, out, err = run(group)

    assert (status, out) == (64, "")
    assert err.startswith(f"Usage: gpucheck {group}")
    assert "\nCommands:\n" in err
    assert "Error" not in err
