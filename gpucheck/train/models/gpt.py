"""A small GPT, 81546 parameters: two blocks of causal attention over 16 patches, and a layer that names the class.

The attention is written out: products of matrices and a softmax repeat bit for bit on every GPU, and the fused kernels
of some torch versions do not.
"""

from typing import Any

from gpucheck.train.data import CLASSES
from gpucheck.train.models import Model
from gpucheck.train.models.transformer import HEADS, PATCHES, WIDTH, patches


def _torch(torch: Any) -> list[Any]:
    nn = torch.nn

    class Attention(nn.Module):  # type: ignore[misc, name-defined]  # torch is handed in
        """Let each place [n, 16, 64] attend to itself and to those before it."""

        def __init__(self) -> None:
            super().__init__()
            self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
            self.output = nn.Linear(WIDTH, WIDTH)
            later = torch.ones(PATCHES, PATCHES, dtype=torch.bool).triu(1)
            self.register_buffer("later", later, persistent=False)

        def forward(self, x: Any) -> Any:
            parts = self.inputs(x).unflatten(-1, (3, HEADS, WIDTH // HEADS))
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            weights = query @ key.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
            weights = weights.masked_fill(self.later, float("-inf")).softmax(-1)
            return self.output((weights @ value).transpose(1, 2).flatten(2))

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # torch is handed in
        """Attention, then two linear layers, each after a norm and added to what came in."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention, self.between = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
            self.layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.before(x))
            return x + self.layers(self.between(x))

    return [patches(torch), Block(), Block(), nn.LayerNorm(WIDTH), nn.Flatten(), nn.Linear(PATCHES * WIDTH, CLASSES)]


MODEL = Model("gpt", "two blocks of causal attention over 16 patches, 81546 parameters", _torch, 0.05, 10)
