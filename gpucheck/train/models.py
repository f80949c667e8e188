"""The networks of the smoke test: ``MODELS``. torch and TensorFlow are handed in."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpucheck.train.data import CLASSES, PIXELS

Forward = Callable[[list[Any], Any], Any]
MOMENTUM = 0.9  # of SGD, in every framework


class Model(NamedTuple):
    """torch_layers: the layers in order, so that a strategy can cut between them; torch is handed in.

    learning_rate: of SGD. learns_in: steps after which the limits on loss and accuracy hold.
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
    tensorflow: Callable[[Any, int], tuple[list[Any], Forward]] | None = None


# A multilayer perceptron: two matrix products, the least that has something to synchronise.
HIDDEN = 128


def _mlp(torch: Any) -> list[Any]:
    return [torch.nn.Linear(PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)]


def _mlp_of_tensorflow(tensorflow: Any, seed: int) -> tuple[list[Any], Forward]:
    def forward(v: list[Any], images: Any) -> Any:
        hidden = tensorflow.nn.relu(tensorflow.linalg.matmul(images, v[0]) + v[1])
        return tensorflow.linalg.matmul(hidden, v[2]) + v[3]

    return _values(((PIXELS, HIDDEN), (HIDDEN, CLASSES)), seed, 1.0), forward


def _values(shapes: tuple[tuple[int, ...], ...], seed: int, gain: float) -> list[Any]:
    """Return weights and zeros for the biases, layer by layer. gain: over the square root of the inputs."""
    import numpy as np

    random, values = np.random.Generator(np.random.PCG64(seed)), []
    for shape in shapes:
        inputs = int(np.prod(shape[:-1]))
        values.append(random.standard_normal(shape, dtype=np.float32) * np.float32(gain / inputs**0.5))
        values.append(np.zeros(shape[-1], dtype=np.float32))
    return values


# Two strided convolutions and a linear layer: the small MNIST network of the usual guides.
CHANNELS = (16, 32)
FEATURES = CHANNELS[1] * 7 * 7


def _cnn(torch: Any) -> list[Any]:
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


def _cnn_of_tensorflow(tensorflow: Any, seed: int) -> tuple[list[Any], Forward]:
    def forward(v: list[Any], images: Any) -> Any:
        x = tensorflow.reshape(images, (-1, 28, 28, 1))
        for weight, bias in ((v[0], v[1]), (v[2], v[3])):
            x = tensorflow.nn.relu(tensorflow.nn.conv2d(x, weight, strides=2, padding="SAME") + bias)
        return tensorflow.linalg.matmul(tensorflow.reshape(x, (-1, FEATURES)), v[4]) + v[5]

    return _values(((5, 5, 1, CHANNELS[0]), (3, 3, *CHANNELS), (FEATURES, CLASSES)), seed, 0.6), forward


# 16 patches of the image: attention, layer norm and many small tensors.
PATCH, ACROSS, WIDTH, HEADS = 7, 4, 64, 4
PATCHES = ACROSS * ACROSS


def _patches(torch: Any) -> Any:
    nn = torch.nn

    class Patches(nn.Module):  # type: ignore[misc, name-defined]  # torch is handed in
        """Cut [n, 784] into [n, 16, 49], embed each patch and add its place."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(PATCH * PATCH, WIDTH)
            self.place = nn.Parameter(torch.randn(PATCHES, WIDTH) * 0.02)

        def forward(self, images: Any) -> Any:
            rows = images.reshape(-1, ACROSS, PATCH, ACROSS, PATCH).transpose(2, 3)
            return self.embed(rows.reshape(-1, PATCHES, PATCH * PATCH)) + self.place

    return Patches()


# A small GPT. The attention also returns its weights: so it is products of matrices and a softmax, which repeat bit for
# bit on every GPU, and the fused kernels of some torch versions do not.
def _gpt(torch: Any) -> list[Any]:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # torch is handed in
        """Let each place [n, 16, 64] attend to itself and to those before it, then two linear layers."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            later = torch.ones(PATCHES, PATCHES, dtype=torch.bool).triu(1)
            self.register_buffer("later", later, persistent=False)

        def forward(self, x: Any) -> Any:
            places = self.before(x)
            x = x + self.attention(places, places, places, attn_mask=self.later)[0]
            return x + self.layers(self.between(x))

    return [_patches(torch), Block(), Block(), nn.LayerNorm(WIDTH), nn.Flatten(), nn.Linear(PATCHES * WIDTH, CLASSES)]


_ALL = (
    # Rounding of the first step, grown over 40 steps: up to 2e-4 between two runs on a CPU; other samples: 0.1.
    Model("cnn", "two convolutions and a linear layer, 20746 parameters", _cnn, 0.1, 40, 128, 50, _cnn_of_tensorflow),
    Model("gpt", "two blocks of causal attention over 16 patches, 81546 parameters", _gpt, 0.05, 10),
    Model("mlp", "multilayer perceptron, 101770 parameters", _mlp, 0.1, 10, tensorflow=_mlp_of_tensorflow),
)
MODELS = {model.name: model for model in _ALL}
