"""Plays tasks for `lockstep play`: episode after episode, each step as text and as a frame."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.envs.rendering import open_stage
from lockstep.envs.worker_pool import WorkerPool
from lockstep.reporting.film import Scene
from lockstep.workloads.control.baselines import Act, Player, policy_of
from lockstep.workloads.control.env import ControlEnv, task_facts
from lockstep.workloads.control.names import number_of
from lockstep.workloads.control.settings import ControlSettings

_HEIGHT, _WIDTH = 360, 480
_NO_PICTURE = np.zeros((1, 1, 3), np.uint8)  # a scene always has an image
_BAR = 21
"""Characters of the bar that shows an action from -1 to 1; odd, so that it has a middle."""


def scenes(
    settings: ControlSettings, player: Player | str, seed: int, pictures: bool = True, only: str = ""
) -> Iterator[Scene]:
    """Yield a scene per step, endlessly: the same episodes as an evaluation with this seed.

    `player` is a trained model, or the name of one of BASELINES. Without pictures no scene has one. `only`: the name
    of one task to play; empty = all tasks in turn.
    """
    policy = policy_of(player)
    facts = task_facts(settings)
    # Environment i has task i modulo the number of tasks, so one task is every n-th environment.
    first, apart = (number_of(only, facts.tasks), len(facts.tasks)) if only else (0, 1)

    def opened(number: int, stage: WorkerPool | None) -> ControlEnv:
        return ControlEnv(facts, torch.tensor([number]), seed, torch.device("cpu"), stage=stage)

    # Rays need no OpenGL; a task that MuJoCo draws for its policy needs it even if nobody looks.
    needs_opengl = facts.renderer == "mujoco" or (pictures and not facts.renderer)
    stage = open_stage(lambda pool: opened(first, pool), facts.tasks[0]) if needs_opengl else None
    try:
        for number in count(first, apart):
            # A new environment for every episode: episode i is the first of environment i, as in an evaluation.
            yield from _episode(opened(number, stage), policy, pictures)
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
            # After an episode's end the environment already shows the next one, so the last frame is kept.
            image = _draw(env, pictures)
        observation, reward, step = done.observation, float(done.reward), step + 1
        score += reward
    # The last scene has no action: it shows the outcome.
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
    parts = (f"step {step}", f"reward {reward:.2f}", f"return {score:.1f}", ending)
    lines = [f"{task}, episode {number + 1}", *(part.replace(" ", "\t", 1) for part in parts[:3]), ending]
    return Scene(
        text="\n".join([*(line.expandtabs(8) for line in lines), *(_scale(value) for value in action.tolist())]),
        image=image,
        caption="   ".join(filter(None, (task, *parts))),
        score=score,
        ended=bool(ending),
    )


def _scale(value: float) -> str:
    """Draw a value from -1 to 1 as a mark on a bar."""
    place = round((min(max(value, -1.0), 1.0) + 1) / 2 * (_BAR - 1))
    return "".join("●" if i == place else "│" if i == _BAR // 2 else "─" for i in range(_BAR)) + f" {value:5.2f}"
