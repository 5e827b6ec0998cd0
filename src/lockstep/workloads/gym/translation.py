"""A policy in the words of its environment: observations as it returns them, actions as it takes them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.gym.single_facts import Facts

_NO_SUCH = (ValueError, TypeError, KeyError, IndexError)
"""What encoding raises for an observation of another shape, such as a batch."""


class Translation:
    """Between a Gymnasium environment and a network."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def rows(self, observation: Any) -> tuple[Tensor, bool]:
        """Observations as the network gets them, (B, ...), and whether it was a single one."""
        try:
            return self._stacked([self._row(observation)]), True
        except _NO_SUCH:
            pass
        try:
            return self._stacked([self._row(one) for one in _each(observation)]), False
        except _NO_SUCH as error:
            source = self._facts.spec.source
            raise UserError(f"{source}: not an observation of its space, nor a batch of them ({error})") from error

    def actions(self, actions: Tensor, single: bool) -> Any:
        """Actions as the environment takes them: one, or an array of them."""
        decoded = [self._facts.rows.decode(row) for row in actions.reshape(len(actions), -1).float().numpy()]
        return decoded[0] if single else np.stack(decoded)

    def _row(self, observation: Any) -> NDArray[Any]:
        row = self._facts.observations.encode(observation)
        # A mask that is reported in the info is not part of an observation: everything is allowed.
        return np.concatenate((row, np.ones(self._facts.observations.mask, np.float32))) if self._masked else row

    @property
    def _masked(self) -> bool:
        return self._facts.observations.mask > 0

    def _stacked(self, rows: list[NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.stack(rows)).view(len(rows), *self._facts.observations.shape)


def _each(observations: Any) -> list[Any]:
    """The observations of a batch, which may be a dictionary of batches."""
    if isinstance(observations, dict):
        count = len(next(iter(observations.values())))
        return [{key: value[i] for key, value in observations.items()} for i in range(count)]
    return list(observations)
