"""A trained model for Python programs: it acts, or predicts."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.errors import UserError
from lockstep.run.learner import Player
from lockstep.workloads import registry
from lockstep.workloads.capabilities import (
    AnswersInputs,
    Forecaster,
    ForecastRequest,
    ForecastsProgress,
    Translates,
)


class Policy:
    """A trained network that acts, or predicts. B: observations, A: actions."""

    def __init__(self, model: str, device: str = "auto") -> None:
        """`model`: a run, a directory of weights or a file, as for `lockstep eval`."""
        subject = models.find(model, ModelOptions(), [])
        subject.check_policy(TRAINED)
        trained = models.load(subject, device)
        self.workload = subject.workload.name
        self.config = subject.config.values()
        self.step = trained.step
        self._subject, self._trained = subject, trained
        self._shape = trained.learner.observation_shape
        workload = subject.workload
        self._translation = workload.translation(subject.config) if isinstance(workload, Translates) else None

    @cached_property
    def _player(self) -> Player:
        return self._trained.learner.player(self._subject.config.run.seed)

    @cached_property
    def _predictor(self) -> Callable[[Any], Any]:
        workload = self._subject.workload
        if not isinstance(workload, AnswersInputs):
            raise UserError(f"{self.workload}: its model acts and does not predict; use act")
        return workload.predictor(self._subject.config, self._trained.learner, self._trained.world)

    def predict(self, inputs: Any) -> Any:
        """What a model predicts that was trained on data, as arrays.

        `fit`: the module's output for a batch of inputs or a single one, in the form of the dataset's items, without
        their targets: an array, a tuple of several inputs, or a dict. cricket: the probabilities of each outcome (B, 7)
        for every ball but the first of an innings, of matches given by the path of a file, folder or zip.
        """
        return _arrays(self._predictor(inputs))

    @cached_property
    def _forecaster(self) -> Forecaster:
        found = registry.require(self._subject.workload, ForecastsProgress)
        return found.forecaster(self._subject.config, self._trained.learner, self._trained.world)

    def forecast(self, source: str, simulate: int = 0, seed: int = 2025, **given: str) -> list[dict[str, Any]]:
        """What `lockstep predict --json` prints, for each match of a file, folder or zip.

        `given`: who takes part in the next ball, where the file cannot tell: striker, nonstriker, bowler.
        """
        request = ForecastRequest(simulate, seed, given)
        return [found.summary() for found in self._forecaster.forecasts(str(source), request)]

    def act(self, observations: NDArray[Any] | Tensor, deterministic: bool = True) -> NDArray[Any]:
        """The most probable action for one observation or each of a batch, or a sampled one: (B, ...) -> (B,).

        For vector actions: the best known action, or one with the exploration noise of training: (B, A).
        """
        seen, single = self._rows(observations)
        action = self._player.act(seen, explore=not deterministic)[0]
        if self._translation is not None:
            return self._translation.actions(action, single)
        return action[0].numpy() if single else action.numpy()

    def probabilities(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float32]:
        """The probability of every action: (B, ...) -> (B, A). Does not change a recurrent network's memory."""
        seen, single = self._rows(observations)
        found = self._player.probabilities(seen)
        if found is None:
            raise UserError(f"{self.workload}: has continuous actions, so there is no probability for each; use act")
        return found[0].numpy() if single else found.numpy()

    def forget(self, ended: NDArray[Any] | Tensor | None = None) -> None:
        """Reset the memory of all positions in the batch, or of those (B,) whose episodes ended.

        For recurrent networks, which keep a memory for each position of the batch from one call to the next.
        """
        self._player.forget(None if ended is None else torch.as_tensor(ended, dtype=torch.bool))

    def _rows(self, observations: Any) -> tuple[Any, bool]:
        """A batch of observations for the network, and whether the caller gave a single one."""
        if self._translation is not None:
            return self._translation.rows(observations)
        seen = _seen(observations)
        # Anything else than a tensor is a workload's own batch of samples.
        single = isinstance(seen, Tensor) and seen.ndim == len(self._shape)
        return (seen[None], True) if single else (seen, False)

    def __repr__(self) -> str:
        return f"Policy({self.workload}, step {self.step})"


def _arrays(found: Any) -> Any:
    """Tensors as arrays, also in tuples and dicts."""
    if isinstance(found, dict):
        return {name: _arrays(value) for name, value in found.items()}
    if isinstance(found, tuple):
        return tuple(map(_arrays, found))
    return found.numpy() if isinstance(found, Tensor) else found


def _seen(observations: Any) -> Any:
    """Arrays become tensors; anything with `to(device)`, such as a workload's own samples, stays as it is."""
    return observations if hasattr(observations, "to") else torch.as_tensor(observations)
