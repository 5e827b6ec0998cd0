"""Recorded episodes, as offline learning asks for them. T: steps of an episode, O: observation size, A: action size."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Episode:
    """T steps: observation (T + 1, O), action (T, A), reward (T,), terminated (T,)."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    task: int
    """Its number among the tasks of the run that reads or writes it."""


class RecordedEpisodes(Protocol):
    """Recorded episodes, numbered from 0."""

    @property
    def count(self) -> int:
        """Number of episodes."""

    @property
    def steps(self) -> int:
        """Steps of all episodes together."""

    def lengths(self) -> list[int]:
        """Steps of each episode."""

    def digest(self) -> str:
        """A digest that identifies these episodes."""

    def episodes(self, numbers: Iterable[int]) -> Iterator[Episode]:
        """The episodes with these numbers, in the given order; padded with zeros to the largest task's sizes."""

    def read(self, episode: Tensor, step: Tensor, into: Mapping[str, Tensor]) -> None:
        """Fill tensors with the sequences that begin at these steps (B,) of these episodes (B,).

        `observation` (H + 1, B, O), `action` (H, B, A), `reward` and `terminated` (H, B) as float32, and `task` (B,) if
        there are several. Only what is asked for is read from disk.
        """
