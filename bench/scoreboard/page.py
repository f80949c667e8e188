"""Write the page of the board from its results."""

from pathlib import Path

import yaml

HERE = Path(__file__).parent
KINDS = {
    "faults": "Faults of gpucheck's simulator",
    "foreign": "Faults of NVIDIA's injector",
    "healthy": "Machines without a fault",
}
UNSEEN = ("not observable", "no recipe")
HEAD = """\
# Scoreboard

{first}

Health checkers for NVIDIA hosts, unmodified, on simulated machines. Made on {date} by
[bench/scoreboard/run.py](../bench/scoreboard/run.py): it installs each checker as
[peers.yml](../bench/scoreboard/peers.yml) states, runs it with `gpucheck simulate --mount` on the machines of
[machines.yml](../bench/scoreboard/machines.yml), and compares its output with that of the same machine without the
fault. Corrections: open an issue or change a recipe.

| word | meaning |
|---|---|
| named | it complains, and what it prints for this fault names the fault and the GPU |
| weak | it complains, without one of the two |
| value | it does not complain; the value that shows the fault is in its output |
| silent | its output does not show the fault |
| false alarm | it complains about a machine without a fault |
| crashed, hung | it ended with an exception, or did not end |
| not observable | it reads this where nothing is shown here, or does not check this machine without the fault either |
| not compared | it compares set-ups, and this column would only repeat its requirements |
"""
TWO_AUTHORS = """\
- Machines and faults are two authors' opinion: those of gpucheck's simulator, and of NVIDIA's `nvml-mock-ctl` for its
  mock NVML, which has no device files, sysfs or kernel log: only what a checker adds because of the fault counts there.
  No real GPU was involved. A checker may name on hardware what it misses here."""
ONE_AUTHOR = """\
- Machines and faults are one author's opinion: those of gpucheck's simulator. NVIDIA's `nvml-mock-ctl` was not built
  for this run; `tests/test_foreign_nvml.py` has what gpucheck makes of recordings of its 25 faults. No real GPU was
  involved. A checker may name on hardware what it misses here."""
LIMITS = """\
## What this page cannot say

{authors}
- The rows were chosen by people who know gpucheck. Faults that only other checkers look for are missing; name one.
- Only what runs once, on one host and without a load is compared: no monitoring, no tests of hours, no cluster.
- "named", "weak", "value" and "silent" are decided by patterns, and these were written after outputs of the checkers
  had been seen (post hoc): the counts describe these runs and predict nothing. A checker that prints a fault in other
  words is "weak" or "value".
- systemd units and the CUDA runtime are not simulated. gpucheck is run with `--level quick`; copies are measured by
  `gpucheck bandwidth`, which names `p2p-slow`.
"""


def page(results, peers, date):
    known = {peer["name"]: peer for peer in peers}
    names = [name for name in known if name in results and results[name]["missing"] is None]
    parts = [HEAD.format(first=first(results, names), date=date), totals(results, names), ""]
    for kind, title in KINDS.items():
        rows = list(dict.fromkeys(key for name in names for key in results[name][kind]))
        if not rows:
            continue
        parts += [f"## {title}", "", f"| {'fault' if kind != 'healthy' else 'machine'} | {' | '.join(names)} |"]
        parts.append("|---" * (len(names) + 1) + "|")
        odd = {one["machine"]: one["odd"] for one in table()["healthy"] if not one.get("faults")}
        for key in rows:
            label = f"`{key}`" + (f" ({odd[key]})" if kind == "healthy" and odd.get(key) else "")
            cells = [results[name][kind].get(key, "not run") for name in names]
            parts.append(f"| {label} | {' | '.join('**named**' if cell == 'named' else cell for cell in cells)} |")
        parts.append("")
    parts += ["## Versions and commands", "", "| checker | version | commands | note |", "|---|---|---|---|"]
    for name in names:
        commands = "<br>".join(f"`{line}`".replace("{", "").replace("}", "") for line in known[name]["run"])
        parts.append(f"| {name} | {known[name]['version']} | {commands} | {known[name].get('note', '')} |")
    absent = [f"{name} ({results[name]['missing']})" for name in known if name in results and name not in names]
    parts += [
        "",
        *([f"Not run here: {'; '.join(absent)}.", ""] if absent else []),
        LIMITS.format(authors=TWO_AUTHORS if any(results[name]["foreign"] for name in names) else ONE_AUTHOR),
    ]
    return "\n".join(parts)


def table():
    return yaml.safe_load((HERE / "machines.yml").read_text())


def first(results, names):
    """Where another checker is better, that is the first line of the page."""
    own, better = results["gpucheck"], []
    for name in names[1:]:
        for kind in ("faults", "foreign"):
            better += [
                f"{name} names `{key}`, gpucheck is {own[kind][key]}"
                for key, word in results[name][kind].items()
                if word == "named" and own[kind].get(key, "named") != "named"
            ]
    alarms = [f"gpucheck complains about {key}" for key, word in own["healthy"].items() if word == "false alarm"]
    if better or alarms:
        return f"**Better than gpucheck here**: {'; '.join(better + alarms)}."
    return "No checker on this page named a fault that gpucheck did not name."


def totals(results, names):
    lines = ["| checker | named | weak or value | false alarms | crashed or hung |", "|---|---|---|---|---|"]
    for name in names:
        words = [word for kind in ("faults", "foreign") for word in results[name][kind].values() if word not in UNSEEN]
        healthy = list(results[name]["healthy"].values())
        cells = (
            f"{words.count('named')} of {len(words)}",
            sum(word in ("weak", "value") for word in words),
            f"{healthy.count('false alarm')} of {sum(word in ('silent', 'false alarm') for word in healthy)}",
            sum(word in ("crashed", "hung") for word in words + healthy),
        )
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
