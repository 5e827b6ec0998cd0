"""Plays environments for `lockstep play`: episode after episode, each step as text and as a frame."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.envs.rendering import open_stage
from lockstep.envs.worker_pool import WorkerPool
from lockstep.reporting.film import Scene
from lockstep.workloads.capabilities import PlayRequest
from lockstep.workloads.gym.random_policy import RandomActions
from lockstep.workloads.gym.single import GymEnv, single_problem
from lockstep.workloads.gym.single_facts import Facts, facts_of

_HEIGHT, _WIDTH = 240, 320
_NO_PICTURE = np.zeros((1, 1, 3), np.uint8)


def scenes(request: PlayRequest) -> Iterator[Scene]:
    """Yield a scene per step, endlessly: the same episodes as an evaluation with this seed."""
    facts = facts_of(request.config.workload)

    def opened(number: int, stage: WorkerPool | None) -> GymEnv:
        return GymEnv(facts, torch.tensor([number]), request.seed, stage=stage)

    stage = open_stage(lambda pool: opened(0, pool), facts.spec.source) if request.pictures else None
    try:
        for number in count():
            player = request.act
            if isinstance(player, str):
                player = RandomActions(single_problem(request.config.workload), request.seed)
            yield from _episode(opened(number, stage), number, player, facts, request.pictures)
    finally:
        if stage is not None:
            stage.disband()


@torch.no_grad()
def _episode(env: GymEnv, number: int, act: Any, facts: Facts, pictures: bool) -> Iterator[Scene]:
    observation, score, reward, ending, step = env.reset(), 0.0, 0.0, "", 0
    image = _draw(env, pictures)
    while not ending:
        answer = act(observation, env)
        # A trained model also returns probabilities.
        action = answer[0] if isinstance(answer, tuple) else answer
        yield _scene(facts, number, step, reward, score, action, image, ending)
        done = env.step(action)
        if bool(done.terminated | done.truncated):
            ending = "ended" if bool(done.terminated) else "time is up"
        else:
            # After an episode's end the environment already shows the next one, so the last frame is kept.
            image = _draw(env, pictures)
        observation, reward, step = done.observation, float(done.reward), step + 1
        score += reward
    yield _scene(facts, number, step, reward, score, None, image, ending)


def _draw(env: GymEnv, pictures: bool) -> NDArray[np.uint8]:
    return env.render(_HEIGHT, _WIDTH) if pictures else _NO_PICTURE


def _scene(
    facts: Facts,
    number: int,
    step: int,
    reward: float,
    score: float,
    action: Tensor | None,
    image: NDArray[np.uint8],
    ending: str,
) -> Scene:
    name = facts.spec.source.rpartition("/")[2]
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
