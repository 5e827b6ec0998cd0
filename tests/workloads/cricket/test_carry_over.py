"""A model that goes on with other matches: players keep what was learned about them, whatever their numbers are."""

import torch

from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.run.warm_start import warm_start
from lockstep.storage.weights import save_weights
from lockstep.workloads.cricket.data.carry_over import carried_over, without_tables
from lockstep.workloads.cricket.features.entities import EntityIndex
from lockstep.workloads.cricket.features.venues import Venues
from lockstep.workloads.cricket.workload import Cricket

CRICKET = Cricket()


def index(venues, teams, players):
    return EntityIndex(Venues(list(venues)), tuple(teams), tuple((key, f"name of {key}") for key in players))


def test_rows_follow_the_names_and_newcomers_keep_their_first_rows():
    old, new = index("AB", "xy", "pqr"), index("B", "wxy", "qsr")
    # Row n of the old tables is filled with n, of the new ones with -n; row 0 is for the unknown.
    tables = {"venue": (3, 2), "team": (3, 4), "player": (4, 4)}
    there = {f"network.embeddings.{name}.weight": rows(size) for name, (size, _) in tables.items()}
    here = {f"network.embeddings.{name}.weight": -rows(size) for name, (_, size) in tables.items()}
    found = carried_over(there | {"other": torch.ones(1)}, here, old, new)
    numbers = {name.split(".")[2]: value[:, 0].tolist() for name, value in found.items() if "." in name}
    assert numbers == {"venue": [0, 2], "team": [0, -1, 1, 2], "player": [0, 2, -2, 3]}
    assert torch.equal(found["other"], torch.ones(1))
    assert list(without_tables(there | {"other": torch.ones(1)})) == ["other"]


def rows(size):
    return torch.arange(float(size))[:, None].repeat(1, 3)


def build(**changes):
    config = CRICKET.preset("debug").replace(device="cpu", **changes)
    return config, CRICKET.build(config, World().with_lanes(config.effective_lanes, "fast"))


def test_a_new_season_starts_from_the_old_model(tmp_path):
    old_config, old = build(matches=20, seed=7)
    weights = dict(old.model.state_dict())
    save_weights(tmp_path / "old", weights, config_text=to_yaml(old_config), workload="cricket", step=1, extra={})
    config, learner = build(matches=24, load_model=str(tmp_path / "old"))
    (first, *_) = warm_start(learner, World(), config, CRICKET)
    total = len(learner.model.state_dict())
    assert first.endswith(f"{total} of {total} tensors loaded")
    name = "network.embeddings.player.weight"
    theirs = {tuple(row) for row in weights[name][1:].tolist()}
    ours = [tuple(row) for row in learner.model.state_dict()[name][1:].tolist()]
    kept = sum(row in theirs for row in ours)
    assert 0 < kept <= len(theirs)


def test_without_knowing_whose_row_is_whose_the_tables_begin_anew(tmp_path):
    _, old = build(matches=20, seed=7)
    torch.save(old.model.state_dict(), tmp_path / "old.pth")
    config, learner = build(matches=20, load_model=str(tmp_path / "old.pth"))
    lines = warm_start(learner, World(), config, CRICKET)
    assert any("begin anew: " in line and "network.embeddings.player.weight" in line for line in lines)
