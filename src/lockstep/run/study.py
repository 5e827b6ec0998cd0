"""A study by Optuna: it chooses the settings of the next run by the scores of those before. Kept in SQLite."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.config.grid import Grid, value_text
from lockstep.errors import UserError

DATABASE = "study.db"


@dataclass(frozen=True)
class Trial:
    """The settings that a study wants to be tried."""

    number: int
    texts: dict[str, str]
    """The value of each setting that varies, as it is given to the command."""
    open: bool
    """Whether the study still waits for its score."""


class Study:
    """The trials of a sweep, in a database beside its runs, so that the study continues when it is opened again."""

    def __init__(self, folder: Path, grid: Grid, seed: int) -> None:
        """`seed`: of the study's own random choices."""
        self._optuna = _optuna()
        self._grid = grid
        path = Path(folder).absolute() / DATABASE
        with self._errors(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that constant_liar is experimental
            storage = self._optuna.storages.RDBStorage(f"sqlite:///{path}")
            self._study = self._optuna.create_study(
                storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
            )
            # Otherwise a continued study would begin its random choices anew, and try the first settings again.
            seed = (seed + len(self._study.trials)) % 2**32
            # constant_liar: trials that run at the same time are not given the same settings.
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def trials(self) -> list[Trial]:
        """All trials so far, oldest first."""
        # A process that was killed between asking and storing leaves a trial without all of its settings.
        return [self._trial(trial) for trial in self._study.trials if set(trial.params) == set(self._grid.names)]

    def ask(self) -> Trial:
        """A new trial."""
        trial = self._study.ask()
        with self._errors(Path(DATABASE)):
            for axis in self._grid.axes:
                trial.suggest_categorical(axis.name, [choice.text for choice in axis.choices])
            for span in self._grid.spans:
                suggest = trial.suggest_int if isinstance(span.low, int) else trial.suggest_float
                suggest(span.name, span.low, span.high, log=span.logarithmic)
        return self._trial(trial)

    def tell(self, number: int, score: float | None) -> None:
        """The score of a trial's run; None if it failed."""
        failed = self._optuna.trial.TrialState.FAIL
        self._study.tell(number, score, state=failed if score is None else None, skip_if_finished=True)

    def _trial(self, trial: Any) -> Trial:
        texts = {name: value_text(trial.params[name]) for name in self._grid.names}
        state = getattr(trial, "state", self._optuna.trial.TrialState.RUNNING)
        return Trial(trial.number, texts, not state.is_finished())

    @contextlib.contextmanager
    def _errors(self, path: Path) -> Iterator[None]:
        """Optuna's and the database's own errors as one line."""
        try:
            yield
        except Exception as error:
            # Which classes these are depends on Optuna's and SQLAlchemy's versions.
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"{path}: the study cannot be continued ({problem}); with other choices or ranges, choose another "
                "--sweep-name"
            ) from error


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("--study: needs the package optuna; pip install 'lockstep-train[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
