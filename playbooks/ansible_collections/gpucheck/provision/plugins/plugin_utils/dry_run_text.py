"""A dry run for a terminal: hosts of a group with the same changes share a block, then the batches."""

import textwrap

WIDTH, LABEL, FEW = 120, 14, 5
# Where no line is broken; a space once lines are.
TOGETHER = "\N{NO-BREAK SPACE}"
VERBS = ("install", "upgrade", "downgrade", "change", "remove")


def count(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"


def gigabytes(size):
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def some(names, most=FEW):
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def package(row):
    if row["verb"] in ("install", "remove"):
        words = f"{row['name']} {row['version'] or row['before']}".strip()
    else:
        words = f"{row['name']} {row['before'] or 'unknown'} to {row['version'] or 'unknown'}"
    return words.replace(" ", TOGETHER)


def download(row):
    size, torch = row["download_bytes"], row["torch_bytes"]
    if row["download_from"] == "bundle":
        return "none, from the bundle"
    known = "unknown" if size is None else gigabytes(size)
    if row["download_from"] == "repository index" and size is not None:
        known = f"at least {known} (repository indexes; packages of the system do not count)"
    return f"{known}, and torch about {gigabytes(torch)}" if torch else known


def unconfirmed(rows):
    components = [row["component"] for row in rows]
    parts = ", ".join(f"{name.replace('_', ' ')} {components.count(name)}" for name in dict.fromkeys(components))
    unread = [row["spec"] for row in rows if not row["in_index"]]
    index = f"not looked up in a repository index: {some(unread)}" if unread else "all found in the repository index"
    return f"no published record shows them ({parts}); {index}"


def block(row):
    """(label, text) of everything that a host's row has."""
    moves = {verb: [package(one) for one in row["packages"] if one["verb"] == verb] for verb in VERBS}
    lines = [(f"{verb} {len(names)}", some(names)) for verb, names in moves.items() if names]
    if row["packages_unknown"]:
        lines.append(("not known", row["packages_unknown"]))
    others = [f"{role.replace('_', ' ')} {number}" for role, number in sorted(row["changes"].items())]
    reboot = "yes" + (", by hand" if row["reboot_by_hand"] else "") + ": " + "; ".join(row["reboot"])
    lines += [
        ("differences", ", ".join(others)),
        ("download", download(row)),
        ("reboot", reboot if row["reboot"] else "not expected"),
        ("drain", row["drain"] or ("none (drain_with is not set)" if row["reboot"] else "none")),
    ]
    if row["unconfirmed"]:
        lines.append((f"unconfirmed {len(row['unconfirmed'])}", unconfirmed(row["unconfirmed"])))
    return lines


def wrapped(label, text, indent):
    start = f"{indent}{label:<{LABEL}} "
    how = {"subsequent_indent": " " * len(start), "break_long_words": False, "break_on_hyphens": False}
    return [line.replace(TOGETHER, " ") for line in textwrap.wrap(start + text, WIDTH, **how)]


def to_text(document):
    rows, lines = document["hosts"], []
    if not rows:
        return f"Dry run: {others(document)}"
    for group in sorted({row["group"] for row in rows.values()}):
        blocks = {}
        for host, row in sorted(rows.items()):
            if row["group"] == group:
                blocks.setdefault((tuple(block(row)), row["simulated"]), []).append(host)
        lines += ["", f"{group}: {count(sum(map(len, blocks.values())), 'host')} would change"]
        for (texts, simulated), hosts in blocks.items():
            lines += textwrap.wrap(
                some(hosts, 12) + ("  SIMULATED" if simulated else ""),
                WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
            )
            lines += [line for label, text in texts for line in wrapped(label, text, "    ")]
    return "\n".join(["Dry run: nothing was changed.", *lines, "", *totals(document)])


def others(document):
    """Hosts that a run would leave alone."""
    left_out = document["left_out"]
    rejected = f" Rejected or unreachable: {some(left_out, 12)}." if left_out else ""
    return f"nothing to do on {count(document['unchanged'], 'host')}.{rejected}"


def totals(document):
    rows = document["hosts"].values()
    lines = [f"Batches: {len(document['batches'])}"]
    for number, batch in enumerate(document["batches"], start=1):
        lines += wrapped(f"{number}", f"{count(len(batch), 'host')}: {some(batch)}", "  ")
    known = [row["download_bytes"] for row in rows if row["download_bytes"] is not None]
    least = (
        "at least " if len(known) < len(rows) or any(row["download_from"] == "repository index" for row in rows) else ""
    )
    size = sum(known) + sum(row["torch_bytes"] for row in rows)
    booting, drained = sum(bool(row["reboot"]) for row in rows), sum(bool(row["drain"]) for row in rows)
    parts = [count(len(rows), "host"), f"{least}{gigabytes(size)} to download", count(booting, "reboot")]
    lines.append(f"Total: {', '.join(parts)}, {count(drained, 'drain')}")
    if sum(known):
        lines.append("Each host keeps the packages that it downloads for a rollback, at most keep_packages_gib.")
    if document["unchanged"] or document["left_out"]:
        lines += textwrap.wrap(f"N{others(document)[1:]}", WIDTH)
    return lines
