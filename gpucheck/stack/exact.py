"""Convert a set to the specification that names exactly this set."""

from gpucheck.stack.components import COMPONENTS
from gpucheck.stack.stack_set import StackSet


def exact_spec(stack: StackSet) -> dict[str, str]:
    """Return the values of the specification that name exactly this set."""
    return {
        **{row.name: row.exact(stack) for row in COMPONENTS if row.default is not None},
        "source": stack.source or "auto",
        # A stated build leaves no preference.
        "torch_origin": "any",
        # Chosen before, so its place in the order of preference no longer matters.
        "end_of_life_os": "allow",
    }
