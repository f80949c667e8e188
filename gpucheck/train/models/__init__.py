"""The networks of the smoke test. One module here is one model; there is no list to keep."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple


class Model(NamedTuple):
    """torch_layers: the layers in order, so that a strategy can cut between them; torch is handed in.

    learning_rate: of SGD with momentum 0.9. learns_in: steps after which the limits on loss and accuracy hold.
    largest_batch: of all ranks together; it does not learn from larger ones at this rate. rounding: factor of the
    parameter tolerance, for a network in which rounding grows: a unit that is just active on one side only.
    tensorflow: variables and forward pass for TensorFlow (handed in), None where the model is torch's only.
    """

    name: str
    summary: str
    torch_layers: Callable[[Any], list[Any]]
    learning_rate: float
    learns_in: int
    largest_batch: int = 1024
    rounding: int = 1
    tensorflow: Callable[[Any, int], tuple[list[Any], Callable[[list[Any], Any], Any]]] | None = None


def all_models() -> dict[str, Model]:
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return {model.name: model for model in sorted((m.MODEL for m in modules), key=lambda m: m.name)}


def model_named(name: str) -> Model:
    models = all_models()
    if name not in models:
        raise LookupError(f"unknown model {name}. Available: {', '.join(models)}")
    return models[name]
