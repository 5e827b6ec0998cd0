"""Carries a model over to other matches: who has the same name keeps his embedding, whatever his number is now."""

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

from lockstep.workloads.cricket.features.entities import EntityIndex

_TABLE = re.compile(r"(?:.*\.)?embeddings\.(venue|team|player|player_team)\.weight")
"""The weights that have a row for each thing of the training matches; row 0 is for unknown ones."""


def without_tables(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that mean the same with any matches."""
    return {name: value for name, value in weights.items() if not _TABLE.fullmatch(name)}


def carried_over(
    weights: Mapping[str, Tensor], needed: Mapping[str, Tensor], old: EntityIndex, new: EntityIndex
) -> dict[str, Tensor]:
    """Weights of a model of old matches for a network of new ones.

    Things that are only in the new matches keep the rows of `needed`, the network's own weights.
    """
    adapted = dict(weights)
    for name, value in weights.items():
        table = _TABLE.fullmatch(name)
        # Rows of another width fit no row here: left as they are, they are reported as not fitting.
        if table is None or name not in needed or value.shape[1:] != needed[name].shape[1:]:
            continue
        there, here = (_things(index, table[1]) for index in (old, new))
        rows = {thing: place for place, thing in enumerate(there, 1)}
        if len(value) != len(there) + 1:
            continue
        adapted[name] = needed[name].detach().clone().to(value.dtype)
        for place, thing in enumerate(here, 1):
            if thing in rows:
                adapted[name][place] = value[rows[thing]].to(adapted[name].device)
    return adapted


def _things(index: EntityIndex, table: str) -> Sequence[str]:
    if table == "venue":
        return index.venues.names
    return index.teams if "team" in table else [key for key, _ in index.players]
