"""One innings of many games, played ball by ball in lockstep, each ball drawn from what the network predicts.

Random numbers are drawn by counter from (seed, purpose, game, delivery): a game draws the same whichever others are
played with it. B: games, n: games whose innings is in progress, P: players of the match, t: deliveries so far.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lockstep.compute.device_array import array_of, look_up, tensor_of
from lockstep.compute.random import uniform
from lockstep.workloads.cricket.columns import BALL_FEATURES, OUTCOMES
from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.features import careers
from lockstep.workloads.cricket.features.contexts import contexts, phase_of_over
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.history import ball_features
from lockstep.workloads.cricket.features.knowledge import COUNTED, CareerInputs, Knowledge
from lockstep.workloads.cricket.features.tabulate import state_columns
from lockstep.workloads.cricket.live import day
from lockstep.workloads.cricket.live.delivery_kinds import DeliveryKinds
from lockstep.workloads.cricket.live.innings import LiveScoreboard
from lockstep.workloads.cricket.live.situation import (
    ATTACK,
    BALLS,
    QUOTA,
    WICKETS,
    NextBall,
    Situation,
    attack,
    batting_order,
    ids_of,
    overs_bowled,
)
from lockstep.workloads.cricket.matches.match import OVERS, Row

Predict = Callable[[Samples], Tensor]
"""Maps samples to the probabilities of the outcomes (n, 7), on the device of the games."""

_LONGEST = 250
"""Deliveries, beyond those of the file, after which an innings is cut off; the longest on record has 144."""
_CLASSES = len(OUTCOMES)
_HISTORY = tuple(name for name in Row._fields if name not in ("innings", "fielder"))


@dataclass(frozen=True)
class Model:
    """What a game needs besides the match: the network, what is known about players, and kinds of deliveries."""

    predict: Predict
    reads_balls: bool
    index: EntityIndex
    knowledge: Knowledge
    kinds: DeliveryKinds
    spread: tuple[float, float] = day.NO_SPREAD
    """How much days differ, in first and second innings; see `day`."""


@dataclass(frozen=True)
class Side:
    """An innings' two sides as numbers: who comes in when, who may bowl, and the ids of venue and teams."""

    order: list[int]
    attack: list[int]
    place_ids: tuple[int, int, int]
    people_ids: np.ndarray
    """(P,)."""


def side_of(at: Situation, team: str, index: EntityIndex, knowledge: Knowledge, ball: NextBall | None = None) -> Side:
    """The innings of a team, with the other side in the field; `ball`: the next one, if it is the innings' in progress.

    The players who have come in must be the first of the order: it is by their number that the next one is found.
    """
    other = at.other(team)
    places = (index.venues.number(at.match) + 1, index.team(team), index.team(other))
    order, bowlers = batting_order(at, team, index, knowledge, ball), attack(at, other, index, knowledge)
    return Side(order, bowlers, places, ids_of(at, index))


class Games:
    """One innings of B games: the deliveries of each, and where each stands."""

    def __init__(
        self, at: Situation, side: Side, numbers: np.ndarray, innings: int, target: np.ndarray, allotted: int
    ) -> None:
        """The games start from nothing; `numbers`: (B,) of the games; `target`: (B,), 0 in a first innings."""
        games, players = len(numbers), len(at.match.players)
        self.numbers, self._every = numbers, np.arange(games, like=numbers)
        self.longest = len(at.match.rows) + _LONGEST
        self.at, self.side, self.innings, self.target, self.allotted = at, side, innings, target, allotted
        # Unplayed deliveries look like wides: sums over a finished innings, of legal balls, dots, wickets and so on,
        # then leave them out without a mask.
        self.columns = {name: self._zeros(self.longest, kind=np.int16) for name in (*_HISTORY, "innings")}
        self.columns["wides"][:], self.columns["total_runs"][:] = 1, 1
        self.surprise, self.spread = (self._zeros(self.longest, _CLASSES, kind=np.float32) for _ in range(2))
        self.carried = np.zeros((2, games, _CLASSES), like=numbers)
        """Sums of the match's earlier innings, of surprise and spread."""
        self.runs, self.wickets, self.legal, self.came_in = (self._zeros() for _ in range(4))
        self.over, self.ball, self.legal_in_over = (self._zeros() for _ in range(3))
        self.striker, self.nonstriker, self.bowler = (self._zeros() for _ in range(3))
        self.free_hit = self._zeros(kind=bool)
        self.positions, self.entries = self._zeros(players) - 1, self._zeros(players)
        self.overs, self.last_bowler = self._zeros(players), self._zeros() - 1
        self.played = 0

    def begin(self, seed: int) -> None:
        """Start the innings: the first two come in."""
        self.striker[:], self.nonstriker[:] = self.side.order[0], self.side.order[1]
        self._new_over(self._every, seed)

    def load(self, rows: np.ndarray, expected: np.ndarray) -> None:
        """Give every game the same deliveries, of the match; `expected`: (t, 7), by the additive model."""
        t = len(rows)
        for name, column in self.columns.items():
            column[:, :t] = rows[:, Row._fields.index(name)]
        self.played, self.runs[:] = t, self.columns["total_runs"][0, :t].sum()
        label = self.board(self._every[:1], t).label[0]
        for outcome in range(_CLASSES):
            surprise, spread = careers.surprises(label == outcome, expected[:, outcome])
            self.surprise[:, :t, outcome], self.spread[:, :t, outcome] = surprise, spread

    def resume(self, ball: NextBall, expected: np.ndarray) -> None:
        """Bring every game to the match's present ball."""
        at = self.at
        self.load(at.rows, expected)
        self.wickets[:], self.legal[:] = at.wickets, at.legal.sum()
        pairs = np.stack([at.column("batter"), at.column("nonstriker")], 1).reshape(-1)
        for player, place in zip(*np.unique(pairs, return_index=True), strict=True):
            came_in, legal = len(set(pairs[:place].tolist())), at.legal[: place // 2].sum()
            self.positions[:, int(player)], self.entries[:, int(player)] = came_in, int(legal)
        self.came_in[:] = len(set(pairs.tolist()))
        faced = np.flatnonzero(at.column("wides") == 0)
        self.free_hit[:] = bool(len(faced)) and at.column("noballs")[faced[-1]] > 0
        self.over[:], self.ball[:] = ball.over, ball.ball_in_over
        self.legal_in_over[:] = at.legal[at.column("over") == ball.over].sum()
        self.striker[:], self.nonstriker[:], self.bowler[:] = ball.striker, ball.nonstriker, ball.bowler
        self.overs[:] = overs_bowled(at)
        if not ball.ball_in_over:
            self.overs[:, ball.bowler] += 1

    def play(self, model: Model, seed: int, previous: LiveScoreboard | None) -> None:
        """Play every game's innings to its end."""
        # One day for the whole innings; by game, like every other draw.
        z = day.drawn(seed, self.numbers, self.innings, model.spread[self.innings])
        while len(live := np.flatnonzero(self._going())) and self.played < self.longest:
            for end in (self.striker, self.nonstriker):
                self._arrive(live, end[live], self.legal[live])
            board = self.board(live, self.played, previous)
            probabilities, expected = self._predict(model, board, live)
            draw = [self._uniform(seed, purpose, live) for purpose in ("outcome", "delivery")]
            running = array_of(day.on_this_day(probabilities, z[tensor_of(live)]), like=live).cumsum(1)
            # Rounding may leave the last sum below 1; its own outcome takes what is beyond.
            outcome = np.minimum((running <= draw[0][:, None]).sum(1), _CLASSES - 1)
            delivery = model.kinds.draw(outcome, phase_of_over(board), draw[1])
            self._record(live, delivery, outcome, expected)
            self._advance(live, delivery, seed)

    def board(self, live: np.ndarray, t: int, previous: LiveScoreboard | None = None) -> LiveScoreboard:
        """The scoreboard of some games before the next ball."""
        coming = {
            "innings": np.full(len(live), self.innings, like=live),
            "over": self.over[live],
            "powerplay": self._powerplay(self.over[live]),
            "batter": self.striker[live],
            "nonstriker": self.nonstriker[live],
            "bowler": self.bowler[live],
            "target": self.target[live],
            "allotted": np.full(len(live), self.allotted, like=live),
            "free_hit": self.free_hit[live],
        }
        columns = {name: column[live, :t] for name, column in self.columns.items()}
        answered = None if previous is None else (previous, live)
        return LiveScoreboard(self.at.match, columns, coming, self.positions[live], self.entries[live], answered)

    def samples(self, model: Model, board: LiveScoreboard, live: np.ndarray) -> tuple[Samples, np.ndarray]:
        """The network's input before the next ball, and the additive model's log-probabilities (n, 7)."""
        side, rows = self.side, np.arange(len(live), like=live)
        people = np.stack([board.current(end) for end in ("bowler", "batter", "nonstriker")], 1)
        ids = np.zeros((len(live), 6), np.int64, like=live)
        ids[:, :3], ids[:, 3:] = side.place_ids, look_up(side.people_ids, people[:, [1, 2, 0]])
        inputs = CareerInputs(board, side.people_ids, ids, contexts(board), phase_of_over(board))
        prior = array_of(careers.prior(inputs, model.knowledge, rows), like=live)
        types = careers.bowling_types(inputs, model.knowledge, rows)
        state = state_columns(board, prior, types, self._today(board, live))
        history = self.played if model.reads_balls else 0
        past = np.stack([board.book[name][:, :history] for name in ("bowler", "batter", "nonstriker")], 2)
        # A network that reads balls is never without one: the ball before the first is there as an absent one.
        absent = int(model.reads_balls and not history)
        samples = Samples(
            state=state.float(),
            career=careers.career(inputs, model.knowledge, rows, _known(inputs, model.knowledge)).float(),
            ids=tensor_of(ids),
            roles=tensor_of(careers.roles(inputs, model.knowledge, rows)),
            innings=tensor_of(board.current("innings")),
            phase=tensor_of(inputs.phase),
            people=tensor_of(people),
            present=_padded(tensor_of(np.ones((len(live), history), bool, like=live)), absent),
            ball=_padded(_balls(board, history), absent),
            ball_ids=_padded(tensor_of(look_up(side.people_ids, past)), absent),
            ball_people=_padded(tensor_of(past), absent),
            over=_padded(tensor_of(board.book["over"][:, :history]), absent),
            ball_in_over=_padded(tensor_of(board.book["ball_in_over"][:, :history]), absent),
        )
        return samples, prior

    def carry(self, other: "Games") -> None:
        """Take over what the match has shown in an earlier innings."""
        self.carried = other.carried + np.stack([other.surprise.sum(1), other.spread.sum(1)])

    def _predict(self, model: Model, board: LiveScoreboard, live: np.ndarray) -> tuple[Tensor, np.ndarray]:
        samples, prior = self.samples(model, board, live)
        return model.predict(samples), np.exp(prior)

    def _today(self, board: LiveScoreboard, live: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
        """The features of `careers.today` for the ball to come."""
        seen = np.stack([part[live, : self.played] for part in (self.surprise, self.spread)])
        innings = seen.sum(2, dtype=np.float64)
        faced, bowled = (
            (board.book[end] == board.current(end)[:, None]).astype(np.float32) for end in ("batter", "bowler")
        )
        sums = {
            ("score_state", "match_today"): self.carried[:, live] + innings,
            ("score_state", "innings_today"): innings,
            ("striker_state", "today"): np.einsum("nt,kntc->knc", faced, seen),
            ("bowler_state", "today"): np.einsum("nt,kntc->knc", bowled, seen),
        }
        return {where: careers.deviation(where, *pair).astype(np.float32) for where, pair in sums.items()}

    def _zeros(self, *axes: int, kind: type = np.int64) -> np.ndarray:
        """(B, ...), where the games' numbers are: in memory or on a GPU."""
        return np.zeros((len(self.numbers), *axes), kind, like=self.numbers)

    def _going(self) -> np.ndarray:
        """(B,): whether the innings is still in progress."""
        chasing = (self.target == 0) | (self.runs < self.target)
        return (self.wickets < WICKETS) & (self.legal < self.allotted) & (self.over < OVERS) & chasing

    def _arrive(self, games: np.ndarray, player: np.ndarray, legal: np.ndarray) -> None:
        """Note place and time of batters who have not been in."""
        fresh = np.flatnonzero(self.positions[games, player] < 0)
        games, player = games[fresh], player[fresh]
        self.entries[games, player] = legal[fresh]
        self.positions[games, player] = self.came_in[games]
        self.came_in[games] += 1

    def _record(self, live: np.ndarray, delivery: dict[str, np.ndarray], outcome: np.ndarray, p: np.ndarray) -> None:
        place = self.played
        values = delivery | {"over": self.over[live], "ball_in_over": self.ball[live], "innings": self.innings}
        values |= {"batter": self.striker[live], "nonstriker": self.nonstriker[live], "bowler": self.bowler[live]}
        values["powerplay"] = self._powerplay(self.over[live])
        out = np.where(delivery["player_out"] > 0, self.nonstriker[live], self.striker[live])
        values["player_out"] = np.where(delivery["kind"] > 0, out, -1)
        for name, value in values.items():
            self.columns[name][live, place] = value
        for number in range(_CLASSES):
            surprise, spread = careers.surprises(outcome == number, p[:, number])
            self.surprise[live, place, number], self.spread[live, place, number] = surprise, spread
        self.played += 1

    def _advance(self, live: np.ndarray, delivery: dict[str, np.ndarray], seed: int) -> None:
        """Update the score and who is where; see `situation.next_ball` for the same rules."""
        wide, noball, out = delivery["wides"] > 0, delivery["noballs"] > 0, delivery["kind"] > 0
        legal = ~wide & ~noball
        self.runs[live] += delivery["total_runs"]
        self.wickets[live] += out
        self.legal[live] += legal
        self.ball[live] += 1
        self.free_hit[live] = noball | (wide & self.free_hit[live])
        coming = self._coming(live, out)
        first = out & (delivery["player_out"] == 0)
        one = np.where(first, coming, self.striker[live])
        other = np.where(out & ~first, coming, self.nonstriker[live])
        self.legal_in_over[live] += legal
        ends = legal & (self.legal_in_over[live] >= BALLS)
        crossed = ((delivery["total_runs"] - wide - noball) % 2 == 1) ^ ends
        self.striker[live], self.nonstriker[live] = np.where(crossed, other, one), np.where(crossed, one, other)
        over = live[ends]
        self.over[over], self.ball[over], self.legal_in_over[over] = self.over[over] + 1, 0, 0
        if len(over):
            self._new_over(over, seed)

    def _coming(self, live: np.ndarray, out: np.ndarray) -> np.ndarray:
        """(n,): who comes in; `out`: (n,), whether a wicket has fallen, without which the number is not used."""
        order, came_in = np.array(self.side.order, like=live), self.came_in[live]
        # Nobody comes in after the last wicket: the innings has ended, and the number is not used.
        coming = order[np.minimum(came_in, len(order) - 1)]
        for place in np.flatnonzero(out & (came_in >= len(order)) & (self.wickets[live] < WICKETS)).tolist():
            # Everybody has been in, since somebody retired or was replaced; one who is not out comes back.
            game = int(live[place])
            dismissed = self.columns["player_out"][game, self.columns["wickets"][game] > 0]
            busy = {*dismissed.tolist(), int(self.striker[game]), int(self.nonstriker[game])}
            coming[place] = next(player for player in self.side.order if player not in busy)
        return coming

    def _new_over(self, games: np.ndarray, seed: int) -> None:
        """Draw who bowls: of the attack, those with more overs left more often; nobody two overs in a row."""
        self.last_bowler[games] = np.where(self.over[games] > 0, self.bowler[games], -1)
        bowlers = np.array(self.side.attack, like=games)
        left = (QUOTA - self.overs[games][:, bowlers]).clip(min=0).astype(np.float64)
        # The rest of the side bowls only if nobody of the attack may, and over its quota only if nobody else may.
        left[:, ATTACK:] *= 1e-6
        left = np.where(bowlers == self.last_bowler[games][:, None], 0.0, left + 1e-12)
        running = left.cumsum(1)
        draw = self._uniform(seed, "bowler", games)[:, None] * running[:, -1:]
        chosen = bowlers[np.minimum((running <= draw).sum(1), len(bowlers) - 1)]
        self.bowler[games] = chosen
        self.overs[games, chosen] += 1

    def _powerplay(self, over: np.ndarray) -> np.ndarray:
        # A second innings that is not in the file is expected to be like the first.
        innings = self.at.match.innings[min(self.innings, len(self.at.match.innings) - 1)]
        return (over < innings.powerplay_overs).astype(np.int64)

    def _uniform(self, seed: int, purpose: str, games: np.ndarray) -> np.ndarray:
        step = self.innings * 1000 + self.played
        drawn = uniform(seed, f"cricket {purpose}", tensor_of(self.numbers[games]), step)
        return array_of(drawn.double(), like=games)


def _balls(board: LiveScoreboard, history: int) -> Tensor:
    """(n, history, 18): BALL_FEATURES, for a network that reads earlier balls."""
    if not history:
        over = board.current("over")
        return tensor_of(np.zeros((len(over), 0, len(BALL_FEATURES)), np.float32, like=over))
    return tensor_of(ball_features(board)).float()


def _known(inputs: CareerInputs, knowledge: Knowledge) -> dict[str, Tensor]:
    """The counts of each game's players alone: rates of everybody would be computed anew at every ball."""
    kinds = {entity: entity for entity in COUNTED} | {"nonstriker": "striker"}
    return {entity: knowledge.counts[kind][tensor_of(inputs.of_entity(entity))] for entity, kind in kinds.items()}


def _padded(values: Tensor, absent: int) -> Tensor:
    """Values (n, t, ...) with `absent` empty ones before them."""
    return torch.cat([values.new_zeros(len(values), absent, *values.shape[2:]), values], 1) if absent else values
