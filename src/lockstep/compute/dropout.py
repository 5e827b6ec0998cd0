"""Dropout whose masks follow from counters: a sample's mask is the same on whichever rank, in whichever micro-batch.

`nn.Dropout` draws from torch's global generator, whose position depends on who drew before. Here each sample has one
random 32-bit word, and the mask is a hash of (word, layer, call of the layer, element). To train a network with it:

    words = counted_dropout(network)             # before training: replaces every nn.Dropout, in place
    network.train()
    word = random.random_words(seed, "dropout", sample_number, epoch)[0]      # (B,), from what identifies the sample
    with words.given(word):                      # words are None if the network has no dropout
        outputs = network(batch)                 # the forward pass of the B samples, which are its first axis
    network.eval()                               # acting and evaluating need no words

The word must depend on the sample's own number in the whole run and on a clock, never on its place in a batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lockstep.compute.ops.dropout import bernoulli, salt_of
from lockstep.errors import RunFailed, UserError

_MOST_USES = 64
"""Uses of one layer in a forward pass until its masks repeat."""
_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class DropoutWords:
    """Where the dropout layers of a network find the random words of the samples that it is computing."""

    def __init__(self) -> None:
        self._words: Tensor | None = None
        self._calls: dict[int, int] = {}

    @contextmanager
    def given(self, words: Tensor) -> Iterator[None]:
        """While this holds, a forward pass drops units of its samples (B, ...) by `words` (B,): 32 bits in int64."""
        self._words, self._calls = words.flatten(), {}
        try:
            yield
        finally:
            self._words = None

    def take(self, layer: int) -> tuple[Tensor, int]:
        """The words, and how often this layer has been called with them: a layer may be used at several places."""
        if self._words is None:
            raise RunFailed("dropout: trained without the words of its samples; wrap the forward pass in words.given()")
        call = self._calls.get(layer, 0)
        self._calls[layer] = call + 1
        return self._words, call


class CounterDropout(nn.Module):
    """`nn.Dropout` with masks from the words of the samples; in eval mode the identity."""

    def __init__(self, rate: float, layer: int, words: DropoutWords, by_channel: bool = False) -> None:
        """`layer`: its number in the network. `by_channel`: drop whole channels, as Dropout2d."""
        super().__init__()
        self.p = rate
        self._layer, self._words, self._by_channel = layer, words, by_channel
        # One for each use of the layer in a forward pass; known in advance, so that it can be compiled.
        self._salts = [salt_of(f"dropout {layer}, use {use}") for use in range(_MOST_USES)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop units of samples (B, ...), or channels of samples (B, C, ...)."""
        if not self.training or self.p == 0.0:
            return inputs
        words, call = self._words.take(self._layer)
        if inputs.shape[0] % len(words) and inputs.shape[:2].numel() != len(words):
            raise UserError(
                f"dropout: a layer's input has shape {tuple(inputs.shape)}, but there are {len(words)} samples; "
                "the samples must be the first axis"
            )
        shape = inputs.shape[:2] if self._by_channel else inputs.shape
        element = torch.arange(shape.numel() // len(words), dtype=torch.int32, device=words.device)
        keep = bernoulli(words.unsqueeze(-1), element, self._salts[call % len(self._salts)], 1.0 - self.p)
        factor = keep.to(inputs.dtype) * (1.0 / (1.0 - self.p) if self.p < 1.0 else 0.0)
        return inputs * factor.view(*shape, *[1] * (inputs.ndim - len(shape)))

    def extra_repr(self) -> str:
        """As nn.Dropout shows itself."""
        return f"p={self.p}"


def counted_dropout(network: nn.Module) -> DropoutWords | None:
    """Replace the dropout layers of a network in place; None if it has none, so that it needs no words."""
    words = DropoutWords()
    replaced: dict[nn.Module, CounterDropout] = {}
    for parent_name, parent in list(network.named_modules()):
        for name, layer in list(parent.named_children()):
            place = f"{parent_name}.{name}".removeprefix(".")
            _refuse_other_dropout(place, layer)
            if isinstance(layer, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
                if layer not in replaced:
                    by_channel = isinstance(layer, _CHANNELS)
                    replaced[layer] = CounterDropout(layer.p, len(replaced), words, by_channel)
                    replaced[layer].train(layer.training)
                setattr(parent, name, replaced[layer])
    return words if replaced else None


def _refuse_other_dropout(place: str, layer: nn.Module) -> None:
    """Raise UserError for layers that draw from torch's own generator."""
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
        raise UserError(f"network: {place} is {type(layer).__name__}, whose draws depend on the ranks; use nn.Dropout")
    if isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0:
        raise UserError(
            f"network: {place} is {type(layer).__name__} with dropout of its own, whose draws depend on the ranks; "
            "build it with dropout=0 and put nn.Dropout before or after it"
        )
