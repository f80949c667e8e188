"""Run in the virtual machine: gpucheck network between two Soft-RoCE devices while things go wrong, as JSON by case."""

import json
import subprocess

import msgspec

from gpucheck.host import live_source
from gpucheck.measure import network as measure
from gpucheck.measure.network.perftest import Transfer
from gpucheck.run.steps.network import network

# What tc does to packets, by case.
CONDITIONS = {
    **{loss: f"loss {loss}%" for loss in ("0", "0.1", "1", "5")},
    "corrupted": "corrupt 2%",
    "delayed": "delay 5ms limit 100000",
}


def run(*commands):
    for words in commands:
        subprocess.run(words.split(), check=True)


def measured(on_step=lambda _: None, *, pair):
    """Write from the first device to the second, or within each; the whole plan takes minutes here."""

    def plan(nics, options, memories):
        pairs = [nics] if pair else [(nic, nic) for nic in nics]
        return [[Transfer("write", a.seen, b.seen, seconds=options.seconds)] for a, b in pairs]

    measure.plan = plan
    options = measure.NetworkOptions(nics=("rxe0", "rxe1"), seconds=3 if pair else 1)
    return msgspec.to_builtins(network(live_source(isolated=True, deadline_s=60.0), options, on_step))


def main():
    cases = {}
    for name, condition in CONDITIONS.items():
        run(f"tc qdisc replace dev v0 root netem {condition}")
        cases[name] = measured(pair=True)
    run("tc qdisc del dev v0 root")
    cases["flap"] = measured(lambda _: run("ip link set v1 down", "ip link set v1 up"), pair=False)

    def leaves(step):
        if "rxe1" in step:
            run("rdma link delete rxe1")

    cases["left"] = measured(leaves, pair=False)
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
