"""A multilayer perceptron of 101770 parameters: two matrix products, the least that has something to synchronise."""

from collections.abc import Callable
from typing import Any

from gpucheck.train.data import CLASSES, PIXELS
from gpucheck.train.models import Model

HIDDEN = 128


def _torch(torch: Any) -> list[Any]:
    return [torch.nn.Linear(PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)]


def _tensorflow(tensorflow: Any, seed: int) -> tuple[list[Any], Callable[[list[Any], Any], Any]]:
    import numpy as np

    random = np.random.Generator(np.random.PCG64(seed))
    values = []
    for inputs, outputs in ((PIXELS, HIDDEN), (HIDDEN, CLASSES)):
        values.append(random.standard_normal((inputs, outputs), dtype=np.float32) / np.float32(inputs**0.5))
        values.append(np.zeros(outputs, dtype=np.float32))

    def forward(v: list[Any], images: Any) -> Any:
        hidden = tensorflow.nn.relu(tensorflow.linalg.matmul(images, v[0]) + v[1])
        return tensorflow.linalg.matmul(hidden, v[2]) + v[3]

    return values, forward


MODEL = Model("mlp", "multilayer perceptron, 101770 parameters", _torch, 0.1, 10, tensorflow=_tensorflow)
