"""Forecasts matches in progress with a trained model: the next ball, what moved it, and how the match may end."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from lockstep.algorithms.supervised.learner import SupervisedLearner
from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.output import tell
from lockstep.workloads.capabilities import ForecastRequest
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data.cache import Store
from lockstep.workloads.cricket.data.preparation import data_errors, open_store, read_matches
from lockstep.workloads.cricket.data.samples import Samples, gather
from lockstep.workloads.cricket.features import careers
from lockstep.workloads.cricket.features.chronicle import day_of
from lockstep.workloads.cricket.features.knowledge import CareerInputs, Knowledge
from lockstep.workloads.cricket.features.scoreboard import Scoreboard
from lockstep.workloads.cricket.features.tabulate import describe
from lockstep.workloads.cricket.live import day, per_ball, reasons
from lockstep.workloads.cricket.live.delivery_kinds import DeliveryKinds
from lockstep.workloads.cricket.live.games import Model
from lockstep.workloads.cricket.live.report import MatchForecast
from lockstep.workloads.cricket.live.simulation import play_out
from lockstep.workloads.cricket.live.situation import (
    NextBall,
    NotForecast,
    Situation,
    attack,
    batting_order,
    next_ball,
    situation,
)
from lockstep.workloads.cricket.matches.archive import MAX_FILE_BYTES, open_archive
from lockstep.workloads.cricket.matches.match import Match, NotAMatch, read_match
from lockstep.workloads.cricket.matches.scorebook import collect
from lockstep.workloads.cricket.reports.assess import Predictor

STDIN = "-"
ENDS = ("striker", "nonstriker", "bowler")
"""Whom a caller may name for the next ball."""


@dataclass(frozen=True)
class _Seen:
    """The ball to come as the network sees it."""

    inputs: CareerInputs
    sample: Samples


class MatchForecaster:
    """A trained model and what was learned from its training matches."""

    def __init__(self, config: CricketConfig, learner: SupervisedLearner, world: World) -> None:
        self._config, self._learner, self._world = config, learner, world
        # Once for all: otherwise each prediction would switch the layers there and back.
        learner.model.eval()
        self._predictor = Predictor(config, learner, world)

    @cached_property
    def _own_store(self) -> Store:
        return open_store(self._config.workload, self._world)

    @cached_property
    def _dated_store(self) -> Store:
        """The same matches, with careers as they were known on each day."""
        return open_store(replace(self._config.workload, careers="earlier"), self._world)

    @cached_property
    def _last_day(self) -> str:
        return max(match.date for match in self._own_store.tables["train"].matches)

    @cached_property
    def _kinds(self) -> DeliveryKinds:
        return DeliveryKinds.of(self._own_store.tables["train"])

    @cached_property
    def _spread(self) -> tuple[float, float]:
        """How much days differ; takes some seconds on a CPU, and is needed only where games are played out."""
        # Not by the training matches, which the network knows too well: with preset small on Cricsheet's matches their
        # first innings have a spread of .027, unseen ones .046.
        return day.spread(self._own_store.tables["validation"].to(self._world.device), self._predictor.of_table)

    def _store(self, date: str) -> Store:
        """Where careers for a match come from: whatever the run was trained with, no later match counts.

        For a match after all training matches both stores know the same, and the run's own is at hand.
        """
        own = self._own_store
        return own if own.chronicle is not None or not date or date > self._last_day else self._dated_store

    def forecasts(self, source: str, request: ForecastRequest) -> Iterator[MatchForecast]:
        """The forecast of each match of a file, a folder or a zip; - is one file on the standard input."""
        for match in self._matches(source):
            yield self.forecast(match, request)

    def forecast(self, match: Match, request: ForecastRequest) -> MatchForecast:
        """The forecast of one match."""
        try:
            at = situation(match)
        except NotForecast as reason:
            return MatchForecast(match, None, str(reason))
        store = self._store(match.date)
        knowledge = store.knowledge if store.chronicle is None else store.chronicle.on(day_of(match))
        ball = self._ball(at, store, knowledge, request.given)
        seen = self._seen(at, ball, store)
        probabilities = self._predictor.probabilities(seen.sample)[0]
        found = MatchForecast(match, at, "", ball, probabilities, self._moved(seen, knowledge, probabilities))
        if not request.simulate:
            return found
        if at.revised:
            return replace(found, note="its target was revised, which the model does not know: not played out")
        rows = np.arange(len(match.rows))
        expected = np.exp(careers.prior(seen.inputs, knowledge, rows).numpy())
        # Features need double precision, which Apple's GPUs do not have: there only the network computes on them.
        place = self._world.device if self._world.device.type == "cuda" else torch.device("cpu")
        model = Model(
            lambda samples: self._predictor.on_device(samples).to(place),
            self._config.network.reads_balls,
            store.index,
            knowledge.to(place),
            self._kinds,
            self._spread,
        )
        return replace(found, endings=play_out(at, ball, model, expected, request.simulate, request.seed))

    def write_steps(self, source: str, path: Path) -> int:
        """Write every predicted ball of the source's matches to a .csv, .json or .parquet file."""
        per_ball.check(path)
        matches = self._matches(source)
        store = self._store(min((match.date for match in matches if match.date), default=""))
        table = describe(Scoreboard(collect(matches)), store.learned, out_of_fold=False)
        if not table.samples:
            raise UserError(f"{shown(source)}: has no ball to predict; an innings is predicted from its second ball on")
        rows = per_ball.rows(table, self._predictor.of_table(table.to(self._world.device)))
        per_ball.write(rows, path)
        return len(rows)

    def _matches(self, source: str) -> list[Match]:
        if source == STDIN:
            content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise UserError(f"-: larger than {MAX_FILE_BYTES >> 20} MiB, more than a match can have")
            try:
                found = [read_match("-", content)]
            except NotAMatch as reason:
                raise UserError(f"-: {reason}; give a match as Cricsheet writes it") from reason
        else:
            notes: list[str] = []
            with data_errors():
                archive = open_archive(Path(source))
                # A bad file in a folder costs that file alone: the others can be forecast.
                found = list(read_matches(archive, archive.names, "skip", notes))
            if notes and not found:
                raise UserError(f"{shown(source)}: {notes[0]}; give a match as Cricsheet writes it")
            for note in notes:
                tell(f"cricket: {note}", sys.stderr)
        if not found:
            raise UserError(f"{shown(source)}: holds no match; give a match as Cricsheet writes it")
        trained_on = {match.file for match in self._own_store.tables["train"].matches}
        if known := [match.file for match in found if match.file in trained_on]:
            more = f" and {len(known) - 1} more" if len(known) > 1 else ""
            tell(f"cricket: {known[0]}{more}: the model was trained on it, so this is no forecast", sys.stderr)
        return found

    def _ball(self, at: Situation, store: Store, knowledge: Knowledge, given: Mapping[str, str]) -> NextBall:
        """The ball to come, with those players that the caller names."""
        order = batting_order(at, at.batting, store.index, knowledge)
        ball = next_ball(at, order, attack(at, at.other(at.batting), store.index, knowledge))
        names = list(at.match.players)
        chosen = {end: getattr(ball, end) for end in ENDS}
        for end, name in given.items():
            side = at.elevens[at.other(at.batting) if end == "bowler" else at.batting]
            allowed = [names[player] for player in side]
            if end not in ENDS or name not in allowed:
                near = nearest(name, allowed)
                hint = f"the nearest is {near}; " if near else ""
                raise UserError(f"{end} {shown(name)}: does not play; {hint}allowed: {', '.join(allowed)}")
            chosen[end] = names.index(name)
        if chosen["striker"] == chosen["nonstriker"]:
            raise UserError(f"striker {shown(names[chosen['striker']])}: is at the other end, too; name both batters")
        # The batter who comes in may be at either end.
        told = {*given, "batter"} if {"striker", "nonstriker"} & set(given) else set(given)
        guessed = tuple(who for who in ball.guessed if who not in told)
        return NextBall(ball.over, ball.ball_in_over, **chosen, guessed=guessed)

    def _seen(self, at: Situation, ball: NextBall, store: Store) -> _Seen:
        """The ball as the last row of a table, made as for training."""
        board = Scoreboard(at.book(ball))
        table = describe(board, store.learned, out_of_fold=False)
        row = len(table) - 1
        history = max(row - int(table.first[row]), 1) if self._config.network.reads_balls else 0
        sample = gather(table, table.phase(), torch.tensor([row]), history)
        # A described table is in half precision, a stored one that is read is not.
        return _Seen(CareerInputs.of(board, store.index), replace(sample, state=sample.state.float()))

    def _moved(self, seen: _Seen, knowledge: Knowledge, probabilities: torch.Tensor) -> dict[str, torch.Tensor]:
        """By group of features: the change of each outcome's log-odds that it makes."""
        row = np.array([len(seen.inputs.phase) - 1])
        shifts = {name: shift[0] for name, shift in careers.shifts(seen.inputs, knowledge, row)}
        prior = knowledge.effects["prior"] + torch.stack(list(shifts.values())).sum(0)
        names, samples = reasons.without_each(seen.sample, prior, shifts, self._state_mean)
        moved = reasons.changes(probabilities, self._predictor.probabilities(samples))
        return dict(zip(names, moved, strict=True))

    @cached_property
    def _state_mean(self) -> torch.Tensor:
        weights = self._learner.model.state_dict()
        return next(value for name, value in weights.items() if name.endswith("scaling.state_mean")).cpu()
