"""Every predicted ball of whole matches as a file: CSV, JSON or Parquet."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.storage.disk import write_atomically
from lockstep.workloads.cricket.columns import OUTCOMES
from lockstep.workloads.cricket.features.table import DeliveryTable


def rows(table: DeliveryTable, probabilities: Tensor) -> list[dict[str, Any]]:
    """A row for each sample of a table: where, who, the score before it, what was predicted and what came."""
    found = []
    for row, predicted in zip(table.sample.tolist(), probabilities.tolist(), strict=True):
        match = table.matches[int(table.match[row])]
        bowler, striker, nonstriker = (table.names[person] for person in table.people[row].tolist())
        runs, wickets, balls, target = table.score[row].tolist()
        found.append(
            {
                **{"match": match.file, "date": match.date, "innings": int(table.innings[row]) + 1},
                **{"over": int(table.over[row]), "ball": int(table.ball_in_over[row]) + 1},
                **{"striker": striker, "nonstriker": nonstriker, "bowler": bowler},
                **{"runs": runs, "wickets": wickets, "legal_balls": balls, "target": target},
                **{f"p_{outcome}": share for outcome, share in zip(OUTCOMES, predicted, strict=True)},
                "outcome": OUTCOMES[int(table.label[row])],
            }
        )
    return found


def check(path: Path) -> None:
    """Raise UserError unless a file of this name can be written."""
    if path.suffix not in _FORMS:
        raise UserError(f"--per-ball {shown(str(path))}: unknown kind of file; allowed: {', '.join(_FORMS)}")
    if not path.parent.is_dir():
        raise UserError(f"--per-ball {shown(str(path))}: the directory {path.parent} does not exist")


def write(found: list[dict[str, Any]], path: Path) -> None:
    """Write rows in the form that the file's suffix names."""
    try:
        write_atomically(path, _FORMS[path.suffix](found))
    except OSError as error:
        raise UserError(f"--per-ball {path}: not written ({error.strerror or error}); give another") from error


def _csv(found: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(found[0]))
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue().encode()


def _json(found: list[dict[str, Any]]) -> bytes:
    return json.dumps(found, indent=1).encode()


def _parquet(found: list[dict[str, Any]]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(
            "--per-ball: .parquet needs pyarrow; pip install 'lockstep-train[parquet]', or write .csv"
        ) from error
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(found), sink)
    return sink.getvalue()


_FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {".csv": _csv, ".json": _json, ".parquet": _parquet}
