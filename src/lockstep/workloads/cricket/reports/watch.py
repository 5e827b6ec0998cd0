"""Shows matches ball by ball, with the prediction before each ball and its outcome. M: balls of an innings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from lockstep.distributed.world import World
from lockstep.reporting.drawing.bars import Bars
from lockstep.reporting.film import Scene
from lockstep.workloads.cricket.columns import OUTCOME_RUNS, OUTCOMES
from lockstep.workloads.cricket.data.samples import Samples, gather
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.reports.assess import matches_of
from lockstep.workloads.cricket.reports.baselines import BASELINES
from lockstep.workloads.cricket.settings import CricketSettings

Act = Callable[[Samples], tuple[Tensor, Tensor]]
"""Maps samples to the most probable outcomes (B,) and probabilities (B, 7)."""

_BAR = 40
"""Characters of the longest bar."""
_BOLD, _FAINT, _PLAIN = "\x1b[1;32m", "\x1b[2m", "\x1b[0m"
_FIRST_BALL = "the first ball of an innings is not predicted: a forecast needs earlier balls"
_INNINGS = ("first innings", "second innings")


@dataclass
class _Forecasts:
    """Running score of a match's predictions."""

    log_loss: float = 0.0
    """Summed over the balls."""
    balls: int = 0

    def add(self, probability: float) -> None:
        """Count one ball, given the predicted probability of its outcome."""
        self.log_loss -= float(np.log(max(probability, 1e-12)))
        self.balls += 1

    @property
    def score(self) -> float:
        """The negative mean log loss, as in evaluations."""
        return -self.log_loss / self.balls if self.balls else 0.0


def scenes(
    settings: CricketSettings, act: Act | str, seed: int, data: str = "", bad_files: str = ""
) -> Iterator[Scene]:
    """Yield every ball, match after match, endlessly; the seed selects the first match.

    `act` is a network's prediction, or the name of a baseline; `data`: matches to show instead of the run's validation
    part; `bad_files`: what to do with files in `data` that are not matches, empty = as configured.
    """
    store, table = matches_of(settings, data, "validation", World(), bad_files)
    log_probabilities = None if callable(act) else _spread(BASELINES[act](store.tables["train"], table), table)
    matches = torch.unique(table.match).tolist()
    for number in count(seed):
        rows = torch.nonzero(table.match == matches[number % len(matches)]).squeeze(1)
        yield from _match(table, rows, act if callable(act) else _Fixed(log_probabilities))


def _spread(log_probabilities: Tensor, table: DeliveryTable) -> Tensor:
    """Predictions of samples at the rows of their deliveries; 0 for the first ball of an innings."""
    rows = torch.zeros(len(table), len(OUTCOMES))
    rows[table.sample] = log_probabilities
    return rows


class _Fixed:
    """A baseline's predictions, computed for all rows in advance."""

    def __init__(self, log_probabilities: Tensor | None) -> None:
        assert log_probabilities is not None
        self.log_probabilities = log_probabilities


def _match(table: DeliveryTable, rows: Tensor, act: Act | _Fixed) -> Iterator[Scene]:
    forecasts = _Forecasts()
    for first in torch.unique(table.first[rows]).tolist():
        innings = rows[table.first[rows] == first]
        probabilities = _predict(table, innings, act)
        for place, row in enumerate(innings.tolist()):
            predicted = probabilities[place] if place else None
            if predicted is not None:
                forecasts.add(float(predicted[table.label[row]]))
            yield _scene(table, row, predicted, forecasts, ended=row == int(rows[-1]))


def _predict(table: DeliveryTable, innings: Tensor, act: Act | _Fixed) -> Tensor:
    """(M, 7) probabilities for all balls of an innings; that of the first, which has no history, is not shown."""
    if isinstance(act, _Fixed):
        return act.log_probabilities[innings].exp()
    return act(gather(table, table.phase(), innings, max(len(innings) - 1, 1)))[1]


def _scene(table: DeliveryTable, row: int, predicted: Tensor | None, forecasts: _Forecasts, ended: bool) -> Scene:
    actual = int(table.label[row])
    match, venue, score, players = _match_lines(table, row)
    caption = f"{score}: {OUTCOMES[actual]}"
    # A line each: together the match and its venue would be wider than most terminals.
    text = [match, venue, score, players, ""]
    if predicted is None:
        text += [f"{_FAINT}{_FIRST_BALL}{_PLAIN}", f"{_FAINT}it was: {OUTCOMES[actual]}{_PLAIN}", ""]
    else:
        text += _bars(predicted, actual)
    if forecasts.balls:
        text.append(f"log loss of the match so far {-forecasts.score:.3f} over {forecasts.balls} balls")
        caption += f"   log loss {-forecasts.score:.3f} over {forecasts.balls} balls"
    shares = None if predicted is None else predicted.tolist()
    image = Bars((f"{match}, {venue}", players), OUTCOMES, shares, actual, _FIRST_BALL)
    return Scene("\n".join(text), image, caption, forecasts.score, ended)


def _match_lines(table: DeliveryTable, row: int) -> list[str]:
    """Four lines: the match, the venue, the score, and the players."""
    match, number = table.matches[int(table.match[row])], int(table.innings[row])
    runs, wickets, balls, target = (int(value) for value in table.score[row])
    bowler, striker, nonstriker = (table.names[int(person)] for person in table.people[row])
    innings = _INNINGS[number] if number < len(_INNINGS) else "super over"
    score = f"{runs}/{wickets} after {balls // 6}.{balls % 6}"
    chase = f", {max(target - runs, 0)} needed" if target else ""
    date = f", {match.date}" if match.date else ""
    return [
        f"{match.teams[0]} v {match.teams[1]}{date}",
        match.venue,
        f"{innings}, {score}{chase}",
        f"{bowler} to {striker} {_tally(table, row)}, {nonstriker} at the other end",
    ]


def _tally(table: DeliveryTable, row: int) -> str:
    """Runs and balls of the striker's innings so far."""
    history = torch.arange(int(table.first[row]), row)
    faced = history[table.people[history, 1] == table.people[row, 1]]
    return f"{int(table.runs[faced, 0].sum())} ({len(faced)})"


def _bars(predicted: Tensor, actual: int) -> list[str]:
    most, lines = float(predicted.max()), []
    for number, (outcome, share) in enumerate(zip(OUTCOMES, predicted.tolist(), strict=True)):
        bar = "█" * round(_BAR * share / most)
        colour = _BOLD if number == actual else ""
        lines.append(f"{colour}{outcome:7} {share:6.1%}  {bar:{_BAR}}{'  actual' if number == actual else ''}{_PLAIN}")
    expected = float(predicted @ torch.tensor(OUTCOME_RUNS, dtype=predicted.dtype))
    return [
        *lines,
        "",
        f"expected runs {expected:.2f}, probability of the actual outcome {float(predicted[actual]):.1%}",
    ]
