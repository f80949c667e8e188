"""Two strided convolutions and a linear layer, 20746 parameters: the small MNIST network of the usual guides."""

from collections.abc import Callable
from typing import Any

from gpucheck.train.data import CLASSES
from gpucheck.train.models import Model

CHANNELS = (16, 32)
FEATURES = CHANNELS[1] * 7 * 7


def _torch(torch: Any) -> list[Any]:
    nn = torch.nn
    return [
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, CHANNELS[0], kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(CHANNELS[0], CHANNELS[1], kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(FEATURES, CLASSES),
    ]


def _tensorflow(tensorflow: Any, seed: int) -> tuple[list[Any], Callable[[list[Any], Any], Any]]:
    import numpy as np

    random = np.random.Generator(np.random.PCG64(seed))
    values = []
    for shape in ((5, 5, 1, CHANNELS[0]), (3, 3, *CHANNELS), (FEATURES, CLASSES)):
        inputs = int(np.prod(shape[:-1]))
        values.append(random.standard_normal(shape, dtype=np.float32) * np.float32(0.6 / inputs**0.5))
        values.append(np.zeros(shape[-1], dtype=np.float32))

    def forward(v: list[Any], images: Any) -> Any:
        x = tensorflow.reshape(images, (-1, 28, 28, 1))
        for weight, bias in ((v[0], v[1]), (v[2], v[3])):
            x = tensorflow.nn.relu(tensorflow.nn.conv2d(x, weight, strides=2, padding="SAME") + bias)
        return tensorflow.linalg.matmul(tensorflow.reshape(x, (-1, FEATURES)), v[4]) + v[5]

    return values, forward


# Rounding of the first step, grown over 40 steps: up to 2e-4 between two runs on a CPU; other samples: 0.1.
MODEL = Model(
    "cnn", "two convolutions and a linear layer, 20746 parameters", _torch, 0.1, 40, 128, 50, tensorflow=_tensorflow
)
