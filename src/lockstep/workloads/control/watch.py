"""Tasks to look at: one episode after another, each step as text and as a picture."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.reporting.film import Scene
from lockstep.workloads.control.baselines import BASELINES, Act
from lockstep.workloads.control.env import ControlEnv, TaskChoice, task_facts
from lockstep.workloads.control.names import number_of
from lockstep.workloads.control.rendering import open_stage

_HEIGHT, _WIDTH = 240, 320
_NO_PICTURE = np.zeros((1, 1, 3), np.uint8)
_BAR = 21
"""Characters of an action's scale, from -1 to 1."""


def scenes(config: TaskChoice, act: Act | str, seed: int, pictures: bool = True, only: str = "") -> Iterator[Scene]:
    """Yield what there is to see at every step, for ever: the episodes of an evaluation with this seed.

    `act` is what a network does, or the name of one of BASELINES. Without pictures nothing is drawn. `only`: of one of
    the tasks; none = of one after the other.
    """
    policy = BASELINES[act] if isinstance(act, str) else act
    facts = task_facts(config)
    first, apart = (number_of(only, facts.tasks), len(facts.tasks)) if only else (0, 1)
    stage = open_stage(facts) if pictures else None
    try:
        for number in count(first, apart):
            env = ControlEnv(facts, torch.tensor([number]), seed, torch.device("cpu"), stage=stage)
            yield from _episode(env, policy, pictures)
    finally:
        if stage is not None:
            stage.disband()


@torch.no_grad()
def _episode(env: ControlEnv, act: Act, pictures: bool) -> Iterator[Scene]:
    observation, score, reward, ending = env.reset(), 0.0, 0.0, ""
    number, step, task = int(env.index[0]), 0, env.facts.tasks[int(env.task[0])]
    image = _draw(env, pictures)
    while not ending:
        action = act(observation, env).cpu()
        yield _scene(task, number, step, reward, score, action[0, : _actions(env)], image, ending)
        done = env.step(action)
        if bool(done.terminated | done.truncated):
            ending = "ended" if bool(done.terminated) else "time is up"
        else:
            # Where an episode has ended, the next one is there already: the last picture stays.
            image = _draw(env, pictures)
        observation, reward, step = done.observation, float(done.reward), step + 1
        score += reward
    yield _scene(task, number, step, reward, score, torch.zeros(0), image, ending)


def _actions(env: ControlEnv) -> int:
    return env.facts.action_dims[int(env.task[0])]


def _draw(env: ControlEnv, pictures: bool) -> NDArray[np.uint8]:
    return env.render(_HEIGHT, _WIDTH) if pictures else _NO_PICTURE


def _scene(
    task: str,
    number: int,
    step: int,
    reward: float,
    score: float,
    action: Tensor,
    image: NDArray[np.uint8],
    ending: str,
) -> Scene:
    words = (f"step {step}", f"reward {reward:.2f}", f"return {score:.1f}", ending)
    lines = [f"{task}, episode {number + 1}", *(word.replace(" ", "\t", 1) for word in words[:3]), ending]
    return Scene(
        text="\n".join([*(line.expandtabs(8) for line in lines), *(_scale(value) for value in action.tolist())]),
        image=image,
        caption="   ".join(filter(None, (task, *words))),
        score=score,
        ended=bool(ending),
    )


def _scale(value: float) -> str:
    """A number from -1 to 1 as a mark on a line."""
    place = round((min(max(value, -1.0), 1.0) + 1) / 2 * (_BAR - 1))
    return "".join("●" if i == place else "│" if i == _BAR // 2 else "─" for i in range(_BAR)) + f" {value:5.2f}"
