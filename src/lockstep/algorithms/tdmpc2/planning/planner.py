"""Planning (MPPI): sample action sequences, predict their returns in the latent space, resample around the best.

E: environments, H: horizon, S: sampled sequences, P: those of the policy prior, G: elites, A: action size,
Z: latent features, I: iterations. All environments are planned together, without synchronizing with the device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2 import noise
from lockstep.algorithms.tdmpc2.model.layers import Stack, run
from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model, joined
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings

_TINY = 1e-9  # against division by zero


@dataclass
class PlanNoise:
    """The random numbers of a plan."""

    prior: Tensor
    """(E, H, P, A) standard normal, like all but the last two."""
    actions: Tensor
    """(E, I, H, S - P, A)"""
    ends: Tensor
    """(E, I, S, A) for the policy prior's actions at the end of the sequences."""
    final: Tensor
    """(E, A) exploration noise of the chosen action."""
    gumbel: Tensor
    """(E, G) for sampling one of the elites."""
    pairs: Tensor
    """(I, 2) the value functions that each iteration uses."""


def draw_noise(
    seed: int, index: Tensor, clock: Tensor, settings: TDMPC2Settings, action: int, members: int
) -> PlanNoise:
    """The random numbers of environments (E,) at a step of the run; the same on any rank."""
    horizon, iterations = settings.horizon, settings.iterations_for(action)
    samples, prior = settings.num_samples, settings.num_pi_trajs
    shapes = {
        "prior": (horizon, prior, action),
        "actions": (iterations, horizon, samples - prior, action),
        "ends": (iterations, samples, action),
        "final": (action,),
    }
    # One draw for all of them, so that a plan needs one kernel for its normal numbers.
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    numbers = noise.normals(seed, "plan", index, clock, sum(sizes)).split(sizes, -1)
    parts = {name: part.unflatten(-1, shape) for (name, shape), part in zip(shapes.items(), numbers, strict=True)}
    uniform = noise.uniforms(seed, "elite", index, clock, settings.num_elites)
    # The clamp keeps the logarithm finite where a uniform number is 0.
    gumbel = -torch.log(-torch.log(uniform.clamp(min=1e-7)))
    # Each iteration has its own pair, at a counter that no other step uses.
    steps = clock * iterations + torch.arange(iterations, device=clock.device)
    return PlanNoise(**parts, gumbel=gumbel, pairs=noise.pair(seed, "judges", steps, members))


@dataclass
class _Situation:
    """What a plan starts from, with an axis for the sequences after E."""

    latent: Tensor
    """(E, 1, Z)"""
    task: Tensor | None
    """(E, 1, task)"""
    mask: Tensor | None
    """(E, 1, A)"""
    discount: Tensor | float
    """(E, 1) or a number."""


class Planner:
    """Plans with the current weights of a model."""

    def __init__(
        self,
        model: TDMPC2Model,
        settings: TDMPC2Settings,
        discount: Tensor | float,
        compiled: Callable[[Any], Any] = lambda f: f,
    ) -> None:
        """`discount`: a number, or (tasks,) one for each task."""
        self._model, self.settings, self._discount = model, settings, discount
        self._iterations = settings.iterations_for(model.spaces.action)
        self._refine = compiled(self._refined)

    @torch.no_grad()
    def plan(
        self, observation: Tensor, previous: Tensor, noise: PlanNoise, task: Tensor | None, explores: bool
    ) -> tuple[Tensor, Tensor]:
        """The first actions (E, A) of the plans, and the plans' means (E, H, A), from which the next ones start.

        `previous` (E, H, A): means of the last plans, zero at the start of an episode. `explores`: add noise.
        """
        situation, proposed, mean, values = self._start(observation, previous, noise, task)
        # Every plan starts wide; only the mean carries over from the last one.
        std = torch.full_like(mean, self.settings.max_std)
        for number in range(self._iterations):
            # This iteration's two value functions; the weights of all pairs were gathered once.
            stack = [tuple(part if part is None else part[2 * number : 2 * number + 2] for part in ws) for ws in values]
            drawn = noise.actions[:, number], noise.ends[:, number]
            mean, std, score, elites = self._refine(situation, proposed, mean, std, drawn, stack)
        # Gumbel-max: one elite, sampled by its weight.
        chosen = (torch.log(score) + noise.gumbel).argmax(1)
        action = elites[:, 0].take_along_dim(chosen.view(-1, 1, 1), 1).squeeze(1)
        # The spread of the last iteration: more noise where the elites disagree.
        if explores:
            action = action + std[:, 0] * noise.final
        return action.clamp(-1.0, 1.0), mean

    def _start(
        self, observation: Tensor, previous: Tensor, noise: PlanNoise, task: Tensor | None
    ) -> tuple[_Situation, Tensor, Tensor, Stack]:
        """The start of plans, the prior's proposals (E, H, P, A), the first mean, and the value functions' weights."""
        model, settings = self._model, self.settings
        # (E, 1) for several tasks: broadcasts over the sequences.
        discount = self._discount if isinstance(self._discount, float) else self._discount[task].unsqueeze(1)
        embedded, mask = model.world.embed(task), model.mask_of(task)
        latent = model.world.encode(observation, embedded)
        situation = _Situation(latent.unsqueeze(1), _unsqueezed(embedded), _unsqueezed(mask), discount)
        proposed = []
        state = situation.latent.expand(-1, settings.num_pi_trajs, -1)
        for time in range(settings.horizon):
            action = model.policy.act(state, situation.task, situation.mask, noise.prior[:, time])
            proposed.append(action)
            # The state after the last action is not needed.
            if time + 1 < settings.horizon:
                state = model.world.next(state, action, situation.task)
        # The last plan, shifted by the step that has been taken since.
        mean = torch.cat((previous[:, 1:], torch.zeros_like(previous[:, :1])), 1)
        return situation, torch.stack(proposed, 1), mean, model.world.values.stack(noise.pairs.flatten())

    def _refined(
        self,
        situation: _Situation,
        proposed: Tensor,
        mean: Tensor,
        std: Tensor,
        noise: tuple[Tensor, Tensor],
        values: Stack,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One iteration: mean and standard deviation (E, H, A) of the elites, their weights (E, G), and the elites."""
        settings, mask = self.settings, situation.mask
        sampled = (mean.unsqueeze(2) + std.unsqueeze(2) * noise[0]).clamp(-1.0, 1.0)
        actions = torch.cat((proposed, sampled), 2)
        if mask is not None:
            actions = actions * mask.unsqueeze(1)
        # topk ranks NaN highest, so a diverged prediction counts as 0.
        value = self.predicted_returns(situation, actions, noise[1], values).nan_to_num(0.0)
        best = value.topk(settings.num_elites, 1)
        elites = actions.take_along_dim(best.indices[:, None, :, None], 2)
        # Relative to the best, so that the exponential cannot overflow.
        score = torch.exp(settings.temperature * (best.values - best.values.amax(1, keepdim=True)))
        score = score / score.sum(1, keepdim=True)
        weight, total = score[:, None, :, None], score.sum(1)[:, None, None] + _TINY
        # MPPI: moments of the elites weighted by score, where the cross-entropy method takes plain ones.
        mean = (weight * elites).sum(2) / total
        deviation = ((weight * (elites - mean.unsqueeze(2)).square()).sum(2) / total).sqrt()
        std = deviation.clamp(settings.min_std, settings.max_std)
        if mask is not None:
            mean, std = mean * mask, std * mask
        return mean, std, score, elites

    def predicted_returns(self, situation: _Situation, actions: Tensor, noise: Tensor, values: Stack) -> Tensor:
        """Predicted returns (E, S) of action sequences (E, H, S, A): rewards, then the value of the last state."""
        model, task = self._model, situation.task
        state = situation.latent.expand(-1, actions.shape[2], -1)
        states = [state]
        for action in actions.unbind(1):
            state = model.world.next(state, action, task)
            states.append(state)
        # (E, 1, 1, task): broadcasts over the steps of a sequence as well.
        along = None if task is None else task.unsqueeze(1)
        path = torch.stack(states, 1)
        reward = model.bins.expected(model.world.reward_logits(path[:, :-1], actions, along))
        action = model.policy.act(state, task, situation.mask, noise)
        inputs = joined(state, task, action)
        logits = run(values, inputs.flatten(0, 1))
        end = model.bins.expected(logits).mean(0).view_as(reward[:, 0])
        continues = self._continues(path[:, 1:], along)
        # From the end backwards: each step discounts what follows; nothing counts after a predicted termination.
        total = end * continues[-1]
        for time in reversed(range(actions.shape[1])):
            total = reward[:, time] * (continues[time - 1] if time else 1.0) + situation.discount * total
        return total

    def _continues(self, path: Tensor, task: Tensor | None) -> list[Tensor | float]:
        """For each of H steps: 1 if the episode continues after it, else 0, (E, S) each."""
        steps = path.shape[1]
        if self._model.world.termination is None:
            return [1.0] * steps
        over = torch.sigmoid(self._model.world.termination_logit(path, task)) > 0.5
        return [(~over[:, : time + 1].any(1)).float() for time in range(steps)]


def _unsqueezed(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.unsqueeze(1)
