"""Layer normalisation whose scale and bias have gradients that are plain sums over rows."""

from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm`; on a CPU lanes can be computed together, as torch's own kernel adds up rows in its own order."""

    def forward(self, features: Tensor) -> Tensor:
        """Normalise over the last axes, then scale and shift."""
        if features.is_cuda or self.weight is None or self.bias is None:
            return super().forward(features)
        normed = F.layer_norm(features, self.normalized_shape, eps=self.eps)
        # In the format of what is normalised, as torch's own.
        return normed * self.weight.to(normed.dtype) + self.bias.to(normed.dtype)
