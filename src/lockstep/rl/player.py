"""A trained policy network as a player: observations in, actions out. B: observations, A: actions."""

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.compute.precision import Precision
from lockstep.errors import UserError
from lockstep.rl.distributions import ActionFamily, Categorical, MultiCategorical
from lockstep.rl.stateful_policy import StatefulPolicy


class PolicyPlayer:
    """Acts with a network that returns (outputs (B, ...), ...), in the same precision as an evaluation.

    A recurrent network's state is kept between calls until `forget`.
    """

    def __init__(
        self, network: nn.Module, actions: ActionFamily, precision: Precision, device: torch.device, seed: int
    ) -> None:
        """`seed`: for sampling actions with `explore`."""
        self._network, self._actions = network, actions
        self._precision, self._device = precision, device
        self._seed = seed
        self._draws = 0
        self._policy: StatefulPolicy | None = None
        self._count = 0

    @torch.no_grad()
    def act(self, observation: Any, env: Any = None, *, explore: bool = False) -> tuple[Tensor, Tensor | None]:
        """The most probable actions (B, ...), or samples with `explore`; and all probabilities if discrete.

        Probabilities of several choices follow each other.
        """
        outputs = self._outputs(observation)
        distribution = self._actions.of(outputs)
        action = self._actions.mode(outputs)
        if explore:
            index = torch.arange(len(observation), device=self._device)
            # The number of the draw takes the place of the step, so that no two calls share random numbers.
            noise = self._actions.noise(self._seed, index, torch.tensor([self._draws], device=self._device), "play")
            action = self._actions.bounded(distribution.draw(noise.squeeze(0)))
            self._draws += 1
        probabilities = (
            distribution.probabilities().cpu() if isinstance(distribution, Categorical | MultiCategorical) else None
        )
        return action.cpu(), probabilities

    def probabilities(self, observation: Any) -> Tensor | None:
        """The probability of every action (B, A); a recurrent network's state does not change."""
        policy = self._policy_of(len(observation))
        # `act` advances the memory in place, so it is restored afterwards.
        before = [part.clone() for part in policy.memory]
        found = self.act(observation)[1]
        for part, kept in zip(policy.memory, before, strict=True):
            part.copy_(kept)
        return found

    def forget(self, ended: Tensor | None = None) -> None:
        """Reset the memory of environments whose episodes ended (B,), or of all."""
        if self._policy is not None:
            self._policy.forget(None if ended is None else ended.to(self._device))

    def memory(self, count: int) -> dict[str, Tensor]:
        """A copy of the memory of `count` environments (B first); empty if the network has none."""
        return {name: part.clone() for name, part in self._policy_of(count).state().items()}

    def remember(self, count: int, memory: dict[str, Tensor]) -> None:
        """Continue with a memory that `memory` returned."""
        self._policy_of(count).load({name: part.to(self._device) for name, part in memory.items()})

    def _outputs(self, observation: Any) -> Tensor:
        policy = self._policy_of(len(observation))
        # What a user passes in may not fit the network; torch's own error is the best description of how.
        try:
            with self._precision.autocast():
                return policy.act(observation.to(self._device))[0].float()
        except (RuntimeError, AttributeError) as error:
            described = f"of shape {tuple(observation.shape)}" if isinstance(observation, Tensor) else "of this kind"
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"observations {described}: the network does not take them ({reason})") from error

    def _policy_of(self, count: int) -> StatefulPolicy:
        """The policy with the memory of a batch of this size; a batch of another size starts without memory."""
        if self._policy is None or self._count != count:
            self._policy, self._count = StatefulPolicy(self._network, count, self._device), count
        return self._policy
