"""The same market and network trained by other programs, as their users would write it, for `bench --against`."""

import functools
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from lockstep.errors import UserError
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.observation import LIMIT
from lockstep.workloads.trading.settings import RecurrentSettings, TradingConfig

HEADS = (64, 64)  # Layers behind the LSTM: SB3's default, and those of our LSTM policy.


def train_with_sb3(config: TradingConfig, updates: int, device: str) -> int:
    """Continue training with sb3-contrib's RecurrentPPO; returns the environment steps. Needs sb3-contrib."""
    # reset_num_timesteps=False: `learn` would start the environments again otherwise.
    steps = updates * config.algorithm.rollout_size
    sb3_learner(config, device).learn(total_timesteps=steps, reset_num_timesteps=False)
    return steps


@functools.cache
def sb3_learner(config: TradingConfig, device: str) -> Any:
    """sb3-contrib's RecurrentPPO with this configuration's sizes; cached, so that a benchmark can call it repeatedly.

    Its policy is its own default: an LSTM for the actor and one for the critic, and two layers of 64 behind each. It
    gets all accounts as one vectorised environment, which is the fastest way for it to trade this market.
    """
    # Imported here, because it is optional.
    from sb3_contrib import RecurrentPPO

    settings, network = config.algorithm, config.network
    if not isinstance(network, RecurrentSettings):
        raise UserError(
            f"peer sb3: RecurrentPPO has an LSTM, network {config.run.network} has none; use --network lstm"
        )
    return RecurrentPPO(
        "MlpLstmPolicy",
        _accounts(config),
        n_steps=settings.n_steps,
        batch_size=settings.batch_size,
        **settings.shared_with_sb3(),
        policy_kwargs={"lstm_hidden_size": network.hidden_size, "net_arch": {"pi": list(HEADS), "vf": list(HEADS)}},
        seed=config.run.seed,
        device=device,
    )


def _accounts(config: TradingConfig) -> Any:
    """All accounts as one `VecEnv` of Stable-Baselines3."""
    from stable_baselines3.common.vec_env import VecEnv

    class Accounts(VecEnv):
        def __init__(self) -> None:
            count = config.algorithm.n_envs
            seed = config.run.seed
            self._env = TradingEnv(config.workload, torch.arange(count), seed, torch.device("cpu"), staggered=True)
            space = spaces.Box(-LIMIT, LIMIT, self._env.observation_shape, np.float32)
            super().__init__(count, space, spaces.Discrete(self._env.action_count))

        def reset(self) -> NDArray[np.float32]:
            # Copies, here and below: the arrays that SB3 gets must not share memory with our tensors.
            return self._env.reset().numpy().copy()

        def step_async(self, actions: NDArray[np.int64]) -> None:
            self._done = self._env.step(torch.from_numpy(actions))

        def step_wait(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
            done = self._done
            seen, ended = done.observation.numpy().copy(), done.terminated.numpy().copy()
            infos: list[dict[str, Any]] = [{} for _ in ended]
            for account in ended.nonzero()[0]:
                # In fact the first of the next episode. SB3 only reads it after a truncation, which there is not.
                infos[account] = {"terminal_observation": seen[account], "TimeLimit.truncated": False}
            return seen, done.reward.numpy().copy(), ended, infos

        def close(self) -> None:
            pass

        # SB3's constructor asks for render_mode, which this environment does not have.
        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self._env, attr_name, None)] * self.num_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise AttributeError(f"{attr_name} cannot be set")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise AttributeError(f"there is no {method_name}")

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * self.num_envs

    return Accounts()


TRAINERS = {"sb3": train_with_sb3}
"""By the names in `Trading.peers`."""
