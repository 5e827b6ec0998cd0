"""Plays environments for `lockstep play`: episode after episode, each step as text and as a frame."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.rendering import open_stage
from lockstep.envs.spaces import Actions, Part
from lockstep.envs.worker_pool import WorkerPool
from lockstep.errors import UserError
from lockstep.reporting.film import Scene
from lockstep.workloads.capabilities import PlayRequest
from lockstep.workloads.gym.agents import AgentsEnv
from lockstep.workloads.gym.agents_facts import agents_facts
from lockstep.workloads.gym.kinds import kind_of
from lockstep.workloads.gym.random_policy import RandomActions
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import GymEnv
from lockstep.workloads.gym.single_facts import facts_of

Opener = Callable[[int, WorkerPool | None], HostedEnv]
"""(number of an environment, where it is rendered) -> that environment."""
_HEIGHT, _WIDTH = 240, 320
_NO_PICTURE = np.zeros((1, 1, 3), np.uint8)


def scenes(request: PlayRequest) -> Iterator[Scene]:
    """Yield a scene per step, endlessly: the same episodes as an evaluation with this seed."""
    source = request.config.workload.env_id
    opened, actions, parts = _opener(request.config.workload, request.seed)
    stage = open_stage(lambda pool: opened(0, pool), source) if request.pictures else None
    try:
        for number in count():
            player = RandomActions(actions, request.seed, parts) if isinstance(request.act, str) else request.act
            yield from _episode(opened(number, stage), number, player, source, request.pictures)
    finally:
        if stage is not None:
            stage.disband()


def _opener(settings: GymSettings, seed: int) -> tuple[Opener, Actions, tuple[Part, ...]]:
    """Opens the environment with a number, and its actions; UserError for kinds that cannot be shown."""
    kind = kind_of(settings)
    if kind == "single":
        facts = facts_of(settings)
        return (
            lambda number, stage: GymEnv(facts, torch.tensor([number]), seed, stage=stage),
            facts.actions,
            facts.observations.parts,
        )
    if kind == "agents":
        team = agents_facts(settings)
        # One reward for the whole team, as in an evaluation.
        return (
            lambda number, stage: AgentsEnv(team, torch.tensor([number]), seed, stage=stage, team_reward=True),
            team.rows.joint_actions,
            (),
        )
    raise UserError(f"{settings.env_id}: its environments come in batches, which cannot be shown; `eval` measures them")


@torch.no_grad()
def _episode(env: HostedEnv, number: int, act: Any, source: str, pictures: bool) -> Iterator[Scene]:
    observation, score, reward, ending, step = env.reset(), 0.0, 0.0, "", 0
    image = _draw(env, pictures)
    while not ending:
        answer = act(observation, env)
        # A trained model also returns probabilities.
        action = answer[0] if isinstance(answer, tuple) else answer
        yield _scene(source, number, step, reward, score, action, image, ending)
        done = env.step(action)
        if bool(done.terminated | done.truncated):
            ending = "ended" if bool(done.terminated) else "time is up"
        else:
            # After an episode's end the environment already shows the next one, so the last frame is kept.
            image = _draw(env, pictures)
        observation, reward, step = done.observation, float(done.reward), step + 1
        score += reward
    yield _scene(source, number, step, reward, score, None, image, ending)


def _draw(env: HostedEnv, pictures: bool) -> NDArray[np.uint8]:
    return env.render(_HEIGHT, _WIDTH) if pictures else _NO_PICTURE


def _scene(
    source: str,
    number: int,
    step: int,
    reward: float,
    score: float,
    action: Tensor | None,
    image: NDArray[np.uint8],
    ending: str,
) -> Scene:
    name = source.rpartition("/")[2]
    chosen = "" if action is None else f"action  {_written(action)}"
    lines = [f"{name}, episode {number + 1}", f"step    {step}", f"reward  {reward:.2f}", f"return  {score:.2f}"]
    caption = f"{name}   step {step}   return {score:.1f}"
    return Scene(
        text="\n".join([*lines, chosen or ending]),
        image=image,
        caption="   ".join(filter(None, (caption, ending))),
        score=score,
        ended=bool(ending),
    )


def _written(action: Tensor) -> str:
    values = action.flatten().tolist()
    return " ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values)
