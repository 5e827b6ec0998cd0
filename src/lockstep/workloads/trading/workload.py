"""Options trading as a workload: its presets and capabilities."""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.config.config import NetworkSettings, Preset, WorkloadSettings, preset
from lockstep.errors import UserError
from lockstep.workloads.capabilities import Comparison, PlayRequest, Results, TradeRequest
from lockstep.workloads.trading.settings import CLSTMSettings, LSTMSettings, TradingConfig, TradingSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.distributed.world import World
    from lockstep.reporting.display import Narrator
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.problem import EnvProblem
    from lockstep.run.learner import Learner
    from lockstep.workloads.trading.market.history import Split

_SMALL = preset(
    "Train on a laptop: about a million days.",
    # A day costs a CPU nearly the same for 64 accounts as for 256, hence many accounts and few days between updates.
    n_envs=256,
    n_steps=32,
    sequence_length=32,
    batch_size=4096,
    learning_rate=1e-3,
    lr_schedule="linear",
    gamma=0.97,
    gae_lambda=0.9,
    total_timesteps=256 * 32 * 128,
    checkpoint_every=256 * 32 * 16,
    eval_every=256 * 32 * 16,
    eval_episodes=128,
)


class Trading(Workload):
    """Accounts that trade options on simulated or real prices."""

    name = "trading"
    summary = "Options trading, recurrent PPO"
    settings: ClassVar[type[WorkloadSettings]] = TradingSettings
    algorithms = ("ppo",)
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {
        "ppo": {"lstm": LSTMSettings, "clstm": CLSTMSettings}
    }
    # The guide's rate for the critic; its rate for the actor is PPO's default.
    defaults: ClassVar[Mapping[str, Any]] = {"learning_rate_critic": 1e-3}
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training with a small network: for tests and first steps.",
            episode_length=20,
            n_envs=16,
            n_steps=8,
            sequence_length=4,
            batch_size=64,
            n_epochs=2,
            hidden_size=32,
            total_timesteps=20 * 16 * 8,
            checkpoint_every=10 * 16 * 8,
            eval_every=10 * 16 * 8,
            eval_episodes=8,
        ),
        "small": _SMALL,
        "base": _SMALL.but(
            "Train on a GPU, in minutes.",
            n_envs=4096,
            n_steps=64,
            sequence_length=64,
            batch_size=16_384,
            # In bf16, replaying a sequence drifts away from the step-by-step rollout; these products are small anyway.
            precision="fp32",
            total_timesteps=4096 * 64 * 400,
            checkpoint_every=4096 * 64 * 40,
            eval_every=4096 * 64 * 20,
            eval_episodes=1024,
        ),
        "guide": preset(
            "Train as the guide does: its network, rates, update interval and 1,000 episodes, on eight accounts.",
            network="clstm",
            # 8 x 16 steps are the guide's update interval of 128. Its other choices, too: one epoch over the rollout as
            # one batch, one-step advantages and no entropy bonus.
            n_envs=8,
            n_steps=16,
            sequence_length=16,
            batch_size=128,
            n_epochs=1,
            gae_lambda=0.0,
            ent_coef=0.0,
            max_grad_norm=1.0,
            total_timesteps=1000 * 250,
            checkpoint_every=100 * 250,
            eval_every=100 * 250,
            eval_episodes=32,
            log_every=10,
        ),
        "sb3": _SMALL.but(
            "Train with sizes that sb3-contrib's RecurrentPPO is usually given, on sequences as long as a rollout.",
            n_envs=64,
            n_steps=128,
            sequence_length=128,
            batch_size=1024,
        ),
    }
    environments: ClassVar[Mapping[str, tuple[str, str]]] = {
        "lockstep/Trading-v0": (
            "lockstep.workloads.trading.gym:TradingGymEnv",
            "lockstep.workloads.trading.gym:TradingGymVectorEnv",
        )
    }
    baselines = ("hold", "random", "buy_and_hold", "always_call", "momentum", "oracle")
    peers: ClassVar[tuple[str, ...]] = ("sb3",)
    # RecurrentPPO has one LSTM for the actor and one for the critic.
    like_peers: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sb3": {"lstms": "two"}}
    # Imported once by the fork server, before it forks the ranks.
    preloads = (
        "lockstep.algorithms.ppo.learner",
        "lockstep.workloads.trading.problem",
        "lockstep.workloads.trading.model",
    )

    def problem(self, config: TradingConfig, world: "World") -> "EnvProblem":
        """The accounts, on this rank's device. Called by every rank."""
        from lockstep.workloads.trading.problem import trading_problem

        return trading_problem(config, world)

    def fit(self, config: TradingConfig, explicit: Collection[str]) -> tuple[TradingConfig, list[str]]:
        """Check that the data can be read and has enough days, before any process is started."""
        settings = config.workload
        splits = dict.fromkeys(("train", settings.evaluation_split))
        return config, self._notes(settings, tuple(splits)) if settings.data else []

    def data_notes(self, config: TradingConfig) -> list[str]:
        """What `fit` says about the data; other data than a policy was trained on need have no days of training."""
        settings = config.workload
        return self._notes(settings, (settings.evaluation_split,)) if settings.data else []

    def _notes(self, settings: TradingSettings, splits: "tuple[Split, ...]") -> list[str]:
        """What is to be known about the data; raises an error if no symbol has enough days for one of the splits."""
        from lockstep.workloads.trading.market.history import load_history

        history = load_history(settings)
        days = (history.day.min(), history.day.max(), history.validation_day)
        first, last, unseen = (date.fromordinal(int(day)) for day in days)
        trains = "train" in splits and settings.evaluation_split == "validation"
        kept = f"; those from {unseen} on are kept from training" if trains else ""
        notes = [f"{'data':12} {', '.join(history.symbols)}: {len(history.day):,} bars, {first} to {last}{kept}"]
        notes += [f"{'data':12} {note}" for note in history.notes]
        for split in splits:
            traded, length = history.traded(split, settings.episode_length), settings.episode_length
            if len(traded) < len(history.symbols):
                left_out = ", ".join(symbol for symbol in history.symbols if symbol not in traded)
                notes.append(
                    f"{'data':12} {split}: only {len(traded)} of {len(history.symbols)} symbols, "
                    f"{', '.join(traded)}; too few days for an episode of {length}: {left_out}"
                )
        return notes

    def narrator(self, config: TradingConfig, world: "World") -> "Narrator":
        """A function that reports the progress of a run in the guide's format."""
        from lockstep.workloads.trading.reports.narration import narrator

        return narrator(config, world)

    def evaluate_baseline(
        self, name: str, config: TradingConfig, world: "World", episodes: int, seed: int
    ) -> "Evaluation":
        """Evaluate one of `baselines`, on the validation days if there is data. Called by every rank."""
        from lockstep.workloads.trading.reports.baselines import evaluate_baseline

        settings = config.workload
        return evaluate_baseline(
            name, settings, world, episodes, seed, historical=bool(settings.data), split=settings.evaluation_split
        )

    def judge(self, config: TradingConfig, learner: "Learner", world: "World") -> "Callable[[int, int], Evaluation]":
        """A function that evaluates a trained policy, on the validation days if there is data."""
        from lockstep.workloads.trading.reports.report import judge

        return judge(config.workload, learner, world)

    def more_results(
        self, config: TradingConfig, results: dict[str, Any], trained_on: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """Say which prices an evaluation was done on, and whether the model was trained on them."""
        settings = config.workload
        if not settings.data:
            return {"on": f"simulated prices ({settings.market})"}
        from lockstep.workloads.trading.market.data_record import how_many_trained_on, record_of
        from lockstep.workloads.trading.market.history import load_history

        days = load_history(settings).days(settings.evaluation_split, settings.episode_length)
        first, last = (date.fromordinal(int(day)) for day in days[[0, -1]])
        # A baseline was not trained on anything.
        record = record_of(settings, trained_on)
        seen = f", {how_many_trained_on(days, record)}" if results["policy"] == "trained" else ""
        return {"on": f"days from {first} to {last}{seen}"}

    def report(self, config: TradingConfig, learner: "Learner", world: "World", episodes: int, seed: int) -> Comparison:
        """Compare a trained policy with itself without memory and with `baselines`, also on days kept from training."""
        from lockstep.workloads.trading.reports.report import report

        return report(config, learner, world, episodes, seed)

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Trade one episode after another, yielding a scene after every day."""
        from lockstep.workloads.trading.reports.watch import scenes

        return scenes(request.config.workload, request.act, request.seed)

    def blotter(self, request: PlayRequest) -> Iterator[tuple[list[str], float]]:
        """Trade one episode after another, yielding for each the lines of its blotter and its reward."""
        from lockstep.workloads.trading.market.data_record import record_of
        from lockstep.workloads.trading.reports.watch import blotter

        settings = request.config.workload
        return blotter(settings, request.act, request.seed, record_of(settings, request.trained_on), request.columns)

    def with_data(
        self, config: TradingConfig, data: Mapping[str, str], trained_on: Mapping[str, str] | None
    ) -> TradingConfig:
        """The configuration of a trained policy for other data: its own symbols, on days that it was not trained on."""
        from lockstep.workloads.trading.market.data_record import first_unseen_day

        settings = config.workload
        # Recorded chains belong to the days of their bars: other bars do without them, unless they come with others.
        chains = data.get("chains", "")
        if "data" not in data:
            return config.replace(chains=chains)
        bars = data["data"]
        changes = {
            "data": bars,
            "chains": chains,
            "start_date": "",
            "end_date": "",
            "validation_from": first_unseen_day(trained_on),
        }
        if not settings.data or not settings.encode_symbols:
            # It does not know symbols: it trades all that the data has.
            return config.replace(**changes, encode_symbols=False, symbols="")
        symbols = str(trained_on.get("symbols", "")) if trained_on else settings.symbols
        if not symbols:
            raise UserError(
                f"--data {bars}: the model does not say which symbols it was trained on; describe it yourself with "
                "--workload, --preset, --symbols and fields"
            )
        return config.replace(**changes, symbols=symbols)

    def trade(self, request: TradeRequest) -> Results:
        """Decide on every day of the data that a paper account has not seen, and write the account."""
        from lockstep.workloads.trading.paper.trader import trade

        return trade(request)

    def run_peer(self, name: str, config: TradingConfig, updates: int, device: str) -> int:
        """Continue training with one of `peers` for a number of updates; returns the environment steps made."""
        from lockstep.workloads.trading import peers

        return peers.TRAINERS[name](config, updates, device)
