"""Boosted trees on the cricket tables: `python benchmarks/cricket_boosted_trees.py --data ZIP --split FILE`.

What LightGBM reaches on the features that the graph network gets besides the balls themselves, with and without what
training matches tell about players, teams and venues. Needs `pip install lightgbm`.
"""

import argparse
import time

import lightgbm
import numpy as np
import torch

from lockstep.distributed.world import World
from lockstep.workloads.cricket.columns import PRIOR_COLUMNS, STATE_COLUMNS, STATE_FEATURES
from lockstep.workloads.cricket.data.preparation import open_splits
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.settings import CricketSettings

LEARNED = ("prior_", "match_today_", "innings_today_", "today_", "pace", "spin")
"""Columns of the state that use what was learned about players."""
SETTINGS = {
    "objective": "multiclass",
    "num_class": 7,
    "learning_rate": 0.08,
    "num_leaves": 24,
    "feature_fraction": 0.25,
    "bagging_fraction": 0.6,
    "bagging_freq": 1,
    "min_data_in_leaf": 300,
    "lambda_l2": 30.0,
    "max_bin": 63,
    "verbose": -1,
    "seed": 1,
}


def columns_of_the_match() -> list[int]:
    """Columns of the state that the match alone tells."""
    return [
        STATE_COLUMNS[node].start + place
        for node, names in STATE_FEATURES.items()
        for place, name in enumerate(names)
        if not name.startswith(LEARNED)
    ]


def features(table: DeliveryTable, careers: bool) -> np.ndarray:
    state = table.state[table.sample]
    if not careers:
        return state[:, columns_of_the_match()].numpy()
    return torch.cat([state, table.career[table.sample].float()], 1).numpy()


def boosted(
    train: DeliveryTable, held_out: DeliveryTable, careers: bool, rounds: int, threads: int
) -> tuple[float, int]:
    """The best log loss on the other table, and after how many rounds."""

    def dataset(table, reference=None):
        # With careers the trees start from the additive model and add to it.
        start = table.state[table.sample][:, PRIOR_COLUMNS].numpy().ravel(order="F") if careers else None
        label = table.label[table.sample].numpy()
        return lightgbm.Dataset(features(table, careers), label, init_score=start, reference=reference)

    told: dict[str, dict[str, list[float]]] = {}
    first = dataset(train)
    lightgbm.train(
        {**SETTINGS, "num_threads": threads},
        first,
        rounds,
        valid_sets=[dataset(held_out, first)],
        callbacks=[lightgbm.record_evaluation(told), lightgbm.early_stopping(30, verbose=False)],
    )
    losses = told["valid_0"]["multi_logloss"]
    return min(losses), int(np.argmin(losses)) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="", help="folder or zip of match files; none = the simulated league")
    parser.add_argument("--split", default="", help="JSON file with the names of each part")
    parser.add_argument("--cache-dir", default="", help="folder for the tables")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    told = parser.parse_args()
    splits = open_splits(CricketSettings(data=told.data, split=told.split, cache_dir=told.cache_dir), World())
    for careers in (False, True):
        start = time.perf_counter()
        loss, rounds = boosted(splits.train, splits.validation, careers, told.rounds, told.threads)
        what = "match state and careers" if careers else "match state"
        took = time.perf_counter() - start
        print(f"{what:24} validation log loss {loss:.4f} after {rounds} rounds ({took:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
