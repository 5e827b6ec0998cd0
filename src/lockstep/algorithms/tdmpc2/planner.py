"""Planning: sample action sequences, foresee them in the latent space, keep the best, sample again (MPPI).

E: environments, H: horizon, S: sampled sequences, P: those of the policy prior, G: the best, A: numbers in an action,
Z: latent features, I: iterations. All environments are planned for at once, and nothing waits for the device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2 import noise
from lockstep.algorithms.tdmpc2.layers import Stack, run
from lockstep.algorithms.tdmpc2.model import TDMPC2Model, joined

_TINY = 1e-9


@dataclass(frozen=True)
class Search:
    """How thoroughly plans are searched for."""

    horizon: int = 3
    iterations: int = 6
    samples: int = 512
    elites: int = 64
    prior: int = 24
    """Sequences that the policy prior proposes."""
    min_std: float = 0.05
    max_std: float = 2.0
    temperature: float = 0.5


@dataclass
class PlanNoise:
    """The random numbers of a plan."""

    prior: Tensor
    """(E, H, P, A) standard normal, as are all but the last two."""
    actions: Tensor
    """(E, I, H, S - P, A)"""
    ends: Tensor
    """(E, I, S, A) for the actions of the prior where the sequences end."""
    final: Tensor
    """(E, A)"""
    gumbel: Tensor
    """(E, G)"""
    pairs: Tensor
    """(I, 2) the value functions that judge each iteration."""


def draw_noise(seed: int, index: Tensor, clock: Tensor, search: Search, action: int, members: int) -> PlanNoise:
    """The random numbers of environments (E,) at a step of the run: the same whoever plans for them."""
    later = search.samples - search.prior
    shapes = {
        "prior": (search.horizon, search.prior, action),
        "actions": (search.iterations, search.horizon, later, action),
        "ends": (search.iterations, search.samples, action),
        "final": (action,),
    }
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    numbers = noise.normals(seed, "plan", index, clock, sum(sizes)).split(sizes, -1)
    parts = {name: part.unflatten(-1, shape) for (name, shape), part in zip(shapes.items(), numbers, strict=True)}
    uniform = noise.uniforms(seed, "elite", index, clock, search.elites)
    gumbel = -torch.log(-torch.log(uniform.clamp(min=1e-7)))
    steps = clock * search.iterations + torch.arange(search.iterations, device=clock.device)
    return PlanNoise(**parts, gumbel=gumbel, pairs=noise.pair(seed, "judges", steps, members))


@dataclass
class _Situation:
    """What a plan starts from, with an axis for the sequences behind E."""

    latent: Tensor
    """(E, 1, Z)"""
    task: Tensor | None
    """(E, 1, task)"""
    mask: Tensor | None
    """(E, 1, A)"""
    discount: Tensor | float
    """(E, 1) or a number."""


class Planner:
    """Plans with a model's present weights."""

    def __init__(
        self,
        model: TDMPC2Model,
        search: Search,
        discount: Tensor | float,
        compiled: Callable[[Any], Any] = lambda f: f,
    ) -> None:
        """`discount`: of the one task, or of each (tasks,)."""
        self._model, self.search, self._discount = model, search, discount
        self._refine = compiled(self._refined)

    @torch.no_grad()
    def plan(
        self, observation: Tensor, previous: Tensor, noise: PlanNoise, task: Tensor | None, explores: bool
    ) -> tuple[Tensor, Tensor]:
        """The first actions (E, A) of the best plans, and the plans' means (E, H, A), which the next ones begin with.

        `previous` (E, H, A) are the means of the last plans, zero where an episode begins. `explores`: add noise.
        """
        search = self.search
        situation, proposed, mean, judges = self._begun(observation, previous, noise, task)
        std = torch.full_like(mean, search.max_std)
        for number in range(search.iterations):
            stack = [tuple(part if part is None else part[2 * number : 2 * number + 2] for part in ws) for ws in judges]
            drawn = noise.actions[:, number], noise.ends[:, number]
            mean, std, score, elites = self._refine(situation, proposed, mean, std, drawn, stack)
        chosen = (torch.log(score) + noise.gumbel).argmax(1)
        action = elites[:, 0].take_along_dim(chosen.view(-1, 1, 1), 1).squeeze(1)
        if explores:
            action = action + std[:, 0] * noise.final
        return action.clamp(-1.0, 1.0), mean

    def _begun(
        self, observation: Tensor, previous: Tensor, noise: PlanNoise, task: Tensor | None
    ) -> tuple[_Situation, Tensor, Tensor, Stack]:
        """Where plans start, what the prior proposes (E, H, P, A), the first mean, and the judges' weights."""
        model = self._model
        discount = self._discount if isinstance(self._discount, float) else self._discount[task].unsqueeze(1)
        embedded, mask = model.world.embed(task), model.mask_of(task)
        latent = model.world.encode(observation, embedded)
        situation = _Situation(latent.unsqueeze(1), _unsqueezed(embedded), _unsqueezed(mask), discount)
        proposed = []
        state = situation.latent.expand(-1, self.search.prior, -1)
        for time in range(self.search.horizon):
            action = model.policy.act(state, situation.task, situation.mask, noise.prior[:, time])
            proposed.append(action)
            if time + 1 < self.search.horizon:
                state = model.world.next(state, action, situation.task)
        mean = torch.cat((previous[:, 1:], torch.zeros_like(previous[:, :1])), 1)
        return situation, torch.stack(proposed, 1), mean, model.world.values.stack(noise.pairs.flatten())

    def _refined(
        self,
        situation: _Situation,
        proposed: Tensor,
        mean: Tensor,
        std: Tensor,
        noise: tuple[Tensor, Tensor],
        judges: Stack,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One iteration: mean and deviation (E, H, A) of the best sequences, their weights (E, G), and themselves."""
        search, mask = self.search, situation.mask
        sampled = (mean.unsqueeze(2) + std.unsqueeze(2) * noise[0]).clamp(-1.0, 1.0)
        actions = torch.cat((proposed, sampled), 2)
        if mask is not None:
            actions = actions * mask.unsqueeze(1)
        value = self.worth(situation, actions, noise[1], judges).nan_to_num(0.0)
        best = value.topk(search.elites, 1)
        elites = actions.take_along_dim(best.indices[:, None, :, None], 2)
        score = torch.exp(search.temperature * (best.values - best.values.amax(1, keepdim=True)))
        score = score / score.sum(1, keepdim=True)
        weight, total = score[:, None, :, None], score.sum(1)[:, None, None] + _TINY
        mean = (weight * elites).sum(2) / total
        deviation = ((weight * (elites - mean.unsqueeze(2)).square()).sum(2) / total).sqrt()
        std = deviation.clamp(search.min_std, search.max_std)
        if mask is not None:
            mean, std = mean * mask, std * mask
        return mean, std, score, elites

    def worth(self, situation: _Situation, actions: Tensor, noise: Tensor, judges: Stack) -> Tensor:
        """What sequences of actions (E, H, S, A) bring, as far as the model can foresee: (E, S)."""
        model, task = self._model, situation.task
        state = situation.latent.expand(-1, actions.shape[2], -1)
        states = [state]
        for action in actions.unbind(1):
            state = model.world.next(state, action, task)
            states.append(state)
        along = None if task is None else task.unsqueeze(1)
        path = torch.stack(states, 1)
        reward = model.bins.expected(model.world.reward_logits(path[:, :-1], actions, along))
        action = model.policy.act(state, task, situation.mask, noise)
        inputs = joined(state, task, action)
        logits = run(judges, inputs.flatten(0, 1))
        end = model.bins.expected(logits).mean(0).view_as(reward[:, 0])
        going_on = self._going_on(path[:, 1:], along)
        # From the end backwards: what comes later counts less, and nothing once the episode is over.
        total = end * going_on[-1]
        for time in reversed(range(actions.shape[1])):
            total = reward[:, time] * (going_on[time - 1] if time else 1.0) + situation.discount * total
        return total

    def _going_on(self, path: Tensor, task: Tensor | None) -> list[Tensor | float]:
        """One while an episode is still going on after each of H steps, else zero: (E, S) each."""
        steps = path.shape[1]
        if self._model.world.termination is None:
            return [1.0] * steps
        over = torch.sigmoid(self._model.world.termination_logit(path, task)) > 0.5
        return [(~over[:, : time + 1].any(1)).float() for time in range(steps)]


def _unsqueezed(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.unsqueeze(1)
