"""Trading for Gymnasium: one account, or many in one vector environment; numpy in, numpy out."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from lockstep.config.fields import nearest, settings_of
from lockstep.errors import UserError
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.history import History, load_history
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.observation import LIMIT, SIZES

ENV_ID = "lockstep/Trading-v0"

Numbers = NDArray[np.float32]


class TradingGymEnv(gymnasium.Env[Numbers, int]):
    """One account; keyword arguments are the fields of `MarketSettings`. `ansi` renders the account in one line."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        self.settings, self.history = _settings(options)
        self.render_mode = _known_mode(render_mode)
        self.observation_space, self.action_space = _spaces(self.history)
        self._accounts: TradingEnv | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Numbers, dict[str, Any]]:
        """Start an episode; the same seed starts the same sequence of episodes."""
        super().reset(seed=seed)
        if seed is not None or self._accounts is None:
            self._accounts = _accounts(self.settings, self.history, 1, self.np_random)
        return self._accounts.reset()[0].numpy(), {}

    def step(self, action: int) -> tuple[Numbers, float, bool, bool, dict[str, Any]]:
        """Take one action; call `reset` after the episode has ended."""
        done = _started(self._accounts).advance(_actions(np.asarray([action]), 1))
        info = {name: float(value) for name, value in done.info.items()}
        return done.observation[0].numpy(), float(done.reward), bool(done.terminated), False, info

    def render(self) -> str | None:  # type: ignore[override]
        """Return the account as text if the render mode is `ansi`."""
        return _line(_started(self._accounts), 0) if self.render_mode else None


class TradingGymVectorEnv(VectorEnv[Numbers, NDArray[np.int64], NDArray[Any]]):
    """Many accounts stepped together; one whose episode ended restarts within the same step."""

    metadata = {**TradingGymEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **options: Any) -> None:
        self.num_envs = num_envs
        self.settings, self.history = _settings(options)
        self.render_mode = _known_mode(render_mode)
        self.single_observation_space, self.single_action_space = _spaces(self.history)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._accounts: TradingEnv | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Numbers, dict[str, Any]]:
        """Start an episode of every account; the same seed starts the same sequences of episodes."""
        super().reset(seed=seed)
        if seed is not None or self._accounts is None:
            self._accounts = _accounts(self.settings, self.history, self.num_envs, self.np_random)
        return self._accounts.reset().numpy(), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Numbers, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one action on every account; `final_obs` and `final_info` describe the ends of finished episodes."""
        accounts = _started(self._accounts)
        done = accounts.advance(_actions(actions, self.num_envs))
        observation, ended = done.observation, done.terminated
        facts = {name: value.numpy() for name, value in done.info.items()}
        infos = _with_masks(facts, ~ended.numpy())
        if ended.any():
            infos |= _finals(observation.numpy(), facts, ended.numpy())
            observation = accounts.restart(ended)
        return observation.numpy(), done.reward.numpy(), ended.numpy(), done.truncated.numpy(), infos

    def render(self) -> tuple[Any, ...] | None:
        """Return every account as text if the render mode is `ansi`."""
        accounts = _started(self._accounts)
        return tuple(_line(accounts, i) for i in range(self.num_envs)) if self.render_mode else None


def _settings(options: dict[str, Any]) -> tuple[MarketSettings, History | None]:
    known = list(settings_of(MarketSettings))
    for name in options:
        if name not in known:
            near = nearest(name, known)
            hint = f"the nearest is {near}, " if near else ""
            raise UserError(f'{ENV_ID} has no setting "{name}"; {hint}all: {", ".join(known)}')
    settings = MarketSettings(**options)
    return settings, load_history(settings) if settings.data else None


def _known_mode(mode: str | None) -> str | None:
    if mode not in (None, "ansi"):
        raise UserError(f'{ENV_ID} has no render_mode "{mode}"; allowed: ansi')
    return mode


def _spaces(history: History | None) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    size = sum(SIZES.values()) + (len(history.symbols) if history else 0)
    return spaces.Box(-LIMIT, LIMIT, (size,), np.float32), spaces.Discrete(len(ACTIONS))


def _accounts(
    settings: MarketSettings, history: History | None, count: int, generator: np.random.Generator
) -> TradingEnv:
    seed = int(generator.integers(2**63))
    return TradingEnv(settings, torch.arange(count), seed, torch.device("cpu"), history=history)


def _started(accounts: TradingEnv | None) -> TradingEnv:
    if accounts is None:
        raise UserError(f"{ENV_ID}: call reset before step or render")
    return accounts


def _actions(actions: NDArray[np.int64], count: int) -> Tensor:
    actions = np.asarray(actions)
    if actions.shape != (count,) or actions.min() < 0 or actions.max() >= len(ACTIONS):
        names = ", ".join(f"{number} {name}" for number, name in enumerate(ACTIONS))
        raise UserError(f"{ENV_ID}: actions {actions.tolist()}; allowed: {count} of {names}")
    return torch.as_tensor(actions, dtype=torch.int64)


def _line(accounts: TradingEnv, number: int) -> str:
    account, market = accounts.account, accounts.market
    return (
        f"day {int(account.steps[number])}: price {float(market.spot[number]):.2f}, "
        f"cash ${float(account.cash[number]):,.2f}, {int(account.positions.open[number].sum())} positions, "
        f"value ${float(account.value[number]):,.2f}"
    )


def _with_masks(values: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Add a mask `_name` beside each value: the accounts it is valid for, as Gymnasium's vector infos do."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}


def _finals(observation: Numbers, facts: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
    """Gymnasium's report on the accounts in the mask: the last observation of each as an object, the rest as arrays."""
    final = np.full(len(ended), None, dtype=object)
    for account in ended.nonzero()[0]:
        final[account] = observation[account]
    return _with_masks({"final_obs": final, "final_info": _with_masks(facts, ended)}, ended)
