"""Two encoder layers over 16 patches of the image, 81546 parameters: attention, layer norm and many small tensors."""

from typing import Any

from gpucheck.train.data import CLASSES
from gpucheck.train.models import Model

PATCH, ACROSS, WIDTH, HEADS = 7, 4, 64, 4
PATCHES = ACROSS * ACROSS


def patches(torch: Any) -> Any:
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


def _torch(torch: Any) -> list[Any]:
    nn = torch.nn

    def layer() -> Any:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)

    return [patches(torch), layer(), layer(), nn.LayerNorm(WIDTH), nn.Flatten(), nn.Linear(PATCHES * WIDTH, CLASSES)]


MODEL = Model("transformer", "two encoder layers over 16 patches, 81546 parameters", _torch, 0.02, 10)
