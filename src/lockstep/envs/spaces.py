"""What observations and actions look like, for every kind of environment. Needs no torch. E: environments."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Discrete:
    """Discrete actions, 0 to count - 1: (E,) int64."""

    count: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several discrete choices at once: (E, len(counts)) int64, choice i from 0 to counts[i] - 1."""

    counts: tuple[int, ...]


@dataclass(frozen=True)
class Continuous:
    """Continuous actions, each component from -1 to 1: (E, size) float32."""

    size: int


Actions = Discrete | MultiDiscrete | Continuous


@dataclass(frozen=True)
class Part:
    """A part of an observation that is put together from several; parts follow each other in one float32 vector."""

    name: str
    shape: tuple[int, ...]
    """Its own shape; an image is (channels, height, width)."""
    kind: Literal["vector", "image", "mask"] = "vector"
    """`image`: values from 0 to 255. `mask`: 1 for every action that is allowed, 0 for the others."""

    @property
    def size(self) -> int:
        """Numbers that it takes up in the vector."""
        return math.prod(self.shape)
