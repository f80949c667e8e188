"""The order in which hosts change: batches, each with a place holder that cannot fail.

Ansible ends a whole run, without any report, where every host of a batch has failed or become unreachable. A batch that
holds one more, which does nothing on the controller, is never lost completely.
"""

from ansible.plugins.action import ActionBase

# batch: so many hosts at a time, a share of the fleet, or a list of those. limited: whether --limit is set.
ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "batch": {"type": "raw", "required": True},
    "fleet": {"type": "int", "required": True},
    "limited": {"type": "bool", "default": False},
}
KEEPER = "batch-{:03}"


def sizes(batch, changing, fleet):
    """Hosts of each batch. batch: a number, a share of the fleet such as 10%, or a list of those whose last repeats."""
    steps = batch if isinstance(batch, list) else [batch]
    wanted = [count(step, fleet) for step in steps or [0]]
    found = []
    while sum(found) < changing:
        step = wanted[min(len(found), len(wanted) - 1)]
        found.append(min(step, changing - sum(found)))
    return found


def count(step, fleet):
    """Hosts of one step, at least one. Raises ValueError for what is neither a number nor a share."""
    text = str(step).strip()
    number = int(text[:-1]) * fleet // 100 if text.endswith("%") else int(text)
    if number < 0 or text.startswith("0"):
        raise ValueError(text)
    return max(number, 1)


def arrange(hosts, batch, fleet, limited):
    """{order, sizes, keepers, first}: the hosts with the place holders between them, and how many make a batch.

    limited: with --limit only localhost can hold a place, so only the last batch has one. first: the hosts of the first
    step of a list, which is a canary; empty if there is no other batch.
    """
    found = sizes(batch, len(hosts), fleet)
    order, keepers, rest = [], [], list(hosts)
    for number, size in enumerate(found[:-1], start=1):
        order += rest[:size]
        rest = rest[size:]
        if not limited:
            keepers.append(KEEPER.format(number))
            order.append(keepers[-1])
    order += [*rest, "localhost"]
    more = [size + (not limited) for size in found[:-1]]
    first = hosts[: found[0]] if isinstance(batch, list) and len(found) > 1 else []
    return {"order": order, "sizes": [*more, (found[-1] if found else 0) + 1], "keepers": keepers, "first": first}


class ActionModule(ActionBase):
    """Runs on the controller, touches nothing."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Arrange the batches; fail with the reason if ``batch`` is invalid."""
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENTS)[1]
        result["changed"] = False
        try:
            result.update(arrange(**arguments))
        except ValueError:
            result.update(
                failed=True,
                msg=f"batch={arguments['batch']}: not a number of hosts, a percentage such as 10%, or a list such as "
                "[1, 10, 50]. Nothing was changed.",
            )
        return result
