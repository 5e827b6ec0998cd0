"""A PettingZoo parallel environment as a simulation: all agents' rows one after another. Needs no torch. A: agents."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.envs import gym_spaces
from lockstep.envs.env_sources import make_environment
from lockstep.envs.episode_actions import LONGEST_REPLAY, EpisodeActions
from lockstep.envs.gym_simulation import EnvSpec
from lockstep.envs.gym_spaces import ActionRows, Observations
from lockstep.envs.hosting import ACTED, AGENT_REWARD, AGENT_TERMINATED, AGENT_TRUNCATED, RESULTS
from lockstep.envs.simulation import Floats, Observation, Outcome, State
from lockstep.envs.spaces import Continuous, Discrete, MultiDiscrete
from lockstep.errors import UserError


@dataclass(frozen=True)
class ParallelSpec(EnvSpec):
    """Which environment of several agents, and how it is used."""

    def make(self, render: bool = False) -> Any:
        """Create the environment; UserError if it cannot be created or has no parallel steps."""
        kwargs = {**self.kwargs, **({"render_mode": "rgb_array"} if render else {})}
        env = make_environment(self.source, kwargs)
        if not callable(getattr(env, "observation_space", None)) or not hasattr(env, "possible_agents"):
            raise UserError(f"{self.source}: made {type(env).__name__}, which has no list `possible_agents`")
        if hasattr(env, "agent_iter"):
            raise UserError(f"{self.source}: its agents act one after another; use its parallel_env")
        return env


@dataclass(frozen=True)
class TeamRows:
    """How observations and actions of all agents are written as one row each."""

    agents: tuple[Any, ...]
    """In the order of possible_agents."""
    each: Observations
    """Of one agent."""
    action: ActionRows
    """Of one agent."""

    @property
    def actions(self) -> Discrete | Continuous:
        """Of one agent."""
        assert isinstance(self.action.actions, Discrete | Continuous)
        return self.action.actions

    @property
    def joint_actions(self) -> MultiDiscrete | Continuous:
        """The actions of all agents, as one action."""
        each = self.actions
        if isinstance(each, Continuous):
            return Continuous(each.size * len(self.agents))
        return MultiDiscrete((each.count,) * len(self.agents))

    @property
    def action_size(self) -> int:
        """Numbers of a row with all agents' actions."""
        return self.action.size * len(self.agents)

    def decode(self, row: Floats) -> dict[Any, Any]:
        """The action of each agent."""
        size = self.action.size
        return {
            agent: self.action.decode(row[number * size : (number + 1) * size])
            for number, agent in enumerate(self.agents)
        }

    def encode(self, seen: dict[Any, Any], among: Collection[Any]) -> Observation:
        """The row of what the agents in `among` see; zeros for the others."""
        size = self.each.size
        row = np.zeros(len(self.agents) * size, self.each.dtype)
        for number, agent in enumerate(self.agents):
            if agent in among:
                row[number * size : (number + 1) * size] = self.each.encode(seen[agent])
        return row

    def without(self, left: Collection[Any], row: Observation) -> Observation:
        """A row with zeros for agents that left."""
        parts = row.copy().reshape(len(self.agents), -1)
        parts[[agent in left for agent in self.agents]] = 0
        return parts.ravel()


def team_rows(env: Any, source: str, shrink: int = 1) -> TeamRows:
    """The row formats of an environment; UserError if its agents differ or cannot be learned together."""
    agents = tuple(env.possible_agents)
    if not agents:
        raise UserError(f"{source}: its possible_agents is empty")
    for name in ("observation_space", "action_space"):
        first = getattr(env, name)(agents[0])
        for agent in agents[1:]:
            if getattr(env, name)(agent) != first:
                raise UserError(
                    f"{source}: {agent} has another {name} than {agents[0]}; all agents share one network, so make "
                    "them equal, for example with SuperSuit's pad_observations and pad_action_space"
                )
    action = gym_spaces.actions_of(env.action_space(agents[0]), source)
    if isinstance(action.actions, MultiDiscrete) or (
        isinstance(action.actions, Discrete) and action.actions.count > 256
    ):
        raise UserError(
            f"{source}: its agents' actions are {env.action_space(agents[0])}; several agents are supported with "
            "Discrete actions, at most 256, and with a Box of floats"
        )
    observations = gym_spaces.observations_of(env.observation_space(agents[0]), source, shrink=shrink)
    if any(part.kind != "vector" for part in observations.parts):
        kinds = ", ".join(f"{part.name} ({part.kind})" for part in observations.parts)
        raise UserError(f"{source}: its agents observe {kinds}; supported are vectors, or a single image")
    return TeamRows(agents, observations, action)


def open_simulation(spec: str, pictures: bool = False) -> "ParallelSimulation":
    """Create the simulation that a `ParallelSpec` in JSON describes."""
    return ParallelSimulation(ParallelSpec(**json.loads(spec)), pictures)


class ParallelSimulation:
    """One parallel environment. An episode lasts until no agent is left; agents that left before have zeros as rows."""

    def __init__(self, spec: ParallelSpec, pictures: bool = False) -> None:
        self._spec, self._pictures = spec, pictures
        self._env = spec.make(pictures)
        self._rows = team_rows(self._env, spec.source, spec.shrink)
        self._present: list[Any] = []
        """The agents that act in the next step."""
        self._length = 0
        self._taken = EpisodeActions(spec.source, self._rows.action_size)

    @property
    def actions(self) -> MultiDiscrete | Continuous:
        """The actions of all agents, as one action."""
        return self._rows.joint_actions

    @property
    def allowed(self) -> Floats | None:
        """None: masks of agents are not read."""
        return None

    def reset(self, seed: int) -> Observation:
        """Start an episode; its seed alone determines it."""
        self._taken.clear()
        self._length = 0
        if self._spec.fresh:
            self._env.close()
            self._env = self._spec.make(self._pictures)
        seen, _ = self._env.reset(seed=seed)
        self._present = list(self._env.agents)
        if not self._present:
            raise ValueError("it has no agents after a reset")
        return self._rows.encode(seen, self._present)

    def step(self, action: Floats) -> Outcome:
        """Apply one action of every agent; those of agents that are not present are ignored."""
        if self._spec.resume == "replay":
            self._taken.add(action)
        acted = self._present
        chosen = {agent: taken for agent, taken in self._rows.decode(action).items() if agent in acted}
        seen, rewards, terminated, truncated, _ = self._env.step(chosen)
        self._length += 1
        results = self._results(acted, rewards, terminated, truncated)
        left = [agent for agent, gone in zip(self._rows.agents, self._gone(results), strict=True) if gone]
        self._present = [agent for agent in self._env.agents if agent not in left]
        over = not self._present
        row = self._rows.encode(seen, {*seen, *self._present})
        cut = bool(results[AGENT_TRUNCATED].any())
        return Outcome(
            row,
            float(results[AGENT_REWARD].sum(dtype=np.float64)),
            over and not cut,
            over and cut,
            0.0,
            agents=results,
            following=self._rows.without(left, row) if left and not over else None,
        )

    def _results(self, acted: Collection[Any], rewards: Any, terminated: Any, truncated: Any) -> Floats:
        """(4, A) each agent's part of an outcome; agents that were not present count as terminated, without reward."""
        results = np.zeros((RESULTS, len(self._rows.agents)), np.float32)
        remaining = set(self._env.agents)
        time_is_up = bool(self._spec.max_steps) and self._length >= self._spec.max_steps
        for number, agent in enumerate(self._rows.agents):
            if agent not in acted:
                results[AGENT_TERMINATED, number] = 1
                continue
            cut = bool(truncated.get(agent, False))
            # An agent that disappears without a word has ended, too.
            ended = bool(terminated.get(agent, False)) or (agent not in remaining and not cut)
            results[:, number] = rewards.get(agent, 0.0), ended, (cut or time_is_up) and not ended, True
        return results

    @staticmethod
    def _gone(results: Floats) -> NDArray[np.bool_]:
        """(A,) the agents whose part ended with this step."""
        ended = results[AGENT_TERMINATED] + results[AGENT_TRUNCATED] > 0
        return ended & (results[ACTED] > 0)

    def save(self) -> State:
        """What `restore` needs: the environment's own state, the episode's actions, or nothing."""
        if self._spec.resume == "state":
            own = np.asarray(self._env.unwrapped.state(), np.float64).ravel()
            present = [float(agent in self._present) for agent in self._rows.agents]
            return np.concatenate(([self._length, *present], own))
        return np.zeros(0) if self._spec.resume == "restart" else self._taken.save()

    def restore(self, seed: int, state: State) -> None:
        """Restore a state that was saved in the episode with that seed."""
        self.reset(seed)
        if self._spec.resume == "state":
            count = len(self._rows.agents)
            self._length = int(state[0])
            self._env.unwrapped.load(state[1 + count :])
            self._present = [a for a, there in zip(self._rows.agents, state[1 : 1 + count], strict=True) if there]
        elif self._spec.resume == "replay":
            for action in self._taken.read(state):
                self.step(action)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A frame, at the size that the environment itself chooses."""
        frame = self._env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(f"{self._spec.source}: has no render_mode rgb_array, so it cannot be shown as a film")
        return frame.astype(np.uint8)[:, :, :3]


def state_size(spec: ParallelSpec, env: Any, rows: TeamRows) -> int:
    """Numbers to keep for one environment's saved state, the same for all of a run."""
    if spec.resume == "restart":
        return 0
    if spec.resume == "state":
        env.reset(seed=0)
        return 1 + len(rows.agents) + int(np.asarray(env.unwrapped.state(), np.float64).size)
    return (time_limit(spec, env) or LONGEST_REPLAY) * rows.action_size


def time_limit(spec: ParallelSpec, env: Any) -> int:
    """Steps after which an episode is truncated at the latest; 0 = not known."""
    # PettingZoo's own environments, and most others, have their limit under this name.
    known = getattr(env.unwrapped, "max_cycles", 0)
    return spec.max_steps or (known if isinstance(known, int) and known > 0 else 0)
