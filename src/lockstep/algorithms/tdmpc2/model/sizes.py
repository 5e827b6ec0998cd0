"""Network sizes by number of parameters, as the official program has them. Nothing here needs torch."""

from collections.abc import Mapping

MODEL_SIZES: Mapping[int, Mapping[str, int]] = {
    1: {"enc_dim": 256, "mlp_dim": 384, "latent_dim": 128, "num_enc_layers": 2, "num_q": 2, "task_dim": 96},
    5: {"enc_dim": 256, "mlp_dim": 512, "latent_dim": 512, "num_enc_layers": 2, "num_q": 5, "task_dim": 64},
    19: {"enc_dim": 1024, "mlp_dim": 1024, "latent_dim": 768, "num_enc_layers": 3, "num_q": 5, "task_dim": 64},
    48: {"enc_dim": 1792, "mlp_dim": 1792, "latent_dim": 768, "num_enc_layers": 4, "num_q": 5, "task_dim": 64},
    317: {"enc_dim": 4096, "mlp_dim": 4096, "latent_dim": 1376, "num_enc_layers": 5, "num_q": 8, "task_dim": 96},
}
"""Network sizes by millions of parameters."""
OtherSizes = Mapping[int, Mapping[str, int]]
"""Sizes, by model_size, that replace those of MODEL_SIZES."""

IMAGE_CELLS = 16
"""Cells of the image encoder's last convolution, 4 x 4: a latent state has so many features for each channel."""
