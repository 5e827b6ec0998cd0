"""Trading as a learner: the market, the network and recurrent PPO put together."""

from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.algorithms.ppo.losses import Forecast
from lockstep.distributed.world import World
from lockstep.rl.rollout import Episodes
from lockstep.workloads.trading import model
from lockstep.workloads.trading.actions import ACTIONS
from lockstep.workloads.trading.config import TradingConfig
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.history import load_history
from lockstep.workloads.trading.observation import SIZES


def build_learner(config: TradingConfig, world: World) -> PPOLearner:
    """Recurrent PPO on trading. Called by every rank."""
    history = load_history(config) if config.data else None
    replays = any(config.is_historical_lane(lane) for lane in range(config.effective_lanes))

    def make_env(index: Tensor, seed: int) -> TradingEnv:
        return TradingEnv(config, index, seed, world.device, history=history, staggered=True)

    def make_test(index: Tensor, seed: int) -> TradingEnv:
        # Real prices where any account learns from them, and of the same days: later ones stay unseen.
        return TradingEnv(config, index, seed, world.device, history=history, historical=replays, split="train")

    symbols = len(history.symbols) if history else 0
    return PPOLearner(
        config,
        world,
        model.network(config, sum(SIZES.values()) + symbols, len(ACTIONS)),
        make_env,
        name="trading",
        make_test=make_test,
        describe=apart if replays else None,
        sequence_length=config.sequence_length,
        critic_rate=config.learning_rate_critic / config.learning_rate,
        forecast=Forecast(config.aux_coef, model.foretold) if config.aux_coef else None,
    )


def apart(episodes: Episodes) -> dict[str, Tensor]:
    """Rewards and profits of the episodes on real prices and of those on simulated ones, apart."""
    real = episodes.info["historical"] > 0
    kinds = {"historical": real, "simulated": ~real}
    columns = {"reward": episodes.returns, "profit": episodes.info["profit"], "sharpe": episodes.info["sharpe"]}
    return {f"{kind}_{name}": column[mask] for kind, mask in kinds.items() for name, column in columns.items()}
