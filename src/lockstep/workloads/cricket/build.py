"""Next-ball prediction as a learner: tables, network and supervised learning put together."""

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised.learner import SupervisedLearner
from lockstep.compute.random import derive_seed
from lockstep.distributed.world import World
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data import Splits, open_splits
from lockstep.workloads.cricket.encoders import Scales, Vocabulary
from lockstep.workloads.cricket.graph import kept_relations, reads_balls
from lockstep.workloads.cricket.metrics import OutcomeTally
from lockstep.workloads.cricket.model import CricketNetwork, Members, Sizes
from lockstep.workloads.cricket.samples import Deliveries, group_lengths
from lockstep.workloads.cricket.table import DeliveryTable, Entities
from lockstep.workloads.cricket.variants import VARIANTS

_ROWS = 32_768
"""Rows of a table that are looked at together."""


def build_learner(config: CricketConfig, world: World) -> SupervisedLearner:
    """Supervised learning on the matches that a configuration names. Called by every rank."""
    splits = open_splits(config, world)
    return learner_for(config, world, splits)


def learner_for(config: CricketConfig, world: World, splits: Splits) -> SupervisedLearner:
    """Supervised learning on tables that are there. Called by every rank."""
    prior = frequencies(splits.train)
    network = build_network(config, splits.entities, prior, scales_of(splits.train))
    train, validation = (dataset_of(config, table.to(world.device)) for table in (splits.train, splits.validation))
    tally = OutcomeTally(prior.to(world.device))
    return SupervisedLearner(config, world, network, train, validation, tally=tally, data_digest=splits.source)


def build_network(config: CricketConfig, entities: Entities, prior: Tensor, scales: Scales) -> nn.Module:
    """The network of a configuration, with the same first weights wherever it is built."""
    sizes = Sizes(
        hidden=config.hidden_dim,
        layers=config.num_layers,
        heads=config.num_heads,
        dropout=config.dropout,
        id_dropout=config.id_dropout,
        player_width=config.player_dim,
        kept=kept_relations(config.drop_relations),
        variant=VARIANTS[config.model],
    )
    vocabulary = Vocabulary(len(entities.venues), len(entities.teams), len(entities.players))

    def member(number: int) -> CricketNetwork:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(config.seed, f"network {number}"))
            return CricketNetwork(sizes, vocabulary, prior, scales)

    return member(0) if config.members == 1 else Members([member(number) for number in range(config.members)])


def dataset_of(config: CricketConfig, table: DeliveryTable) -> Deliveries:
    """A table in groups of histories, as many as the configuration says."""
    lengths = group_lengths(table.longest, config.history_groups)
    return Deliveries(table, lengths, reads_balls(kept_relations(config.drop_relations)))


def frequencies(table: DeliveryTable) -> Tensor:
    """(7,) how often each outcome comes among the samples of a table."""
    counts = table.class_counts()
    return counts.double().div(counts.sum()).float()


def scales_of(table: DeliveryTable) -> Scales:
    """Mean and deviation of the features over the samples of a table."""
    return Scales(*_moments(table.state, table.sample), *_moments(table.career, table.sample))


def _moments(column: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of some rows, a part of them at a time: all in float64 would be most of a rank's memory."""
    parts = rows.split(_ROWS)
    mean = torch.stack([column[part].double().sum(0) for part in parts]).sum(0) / len(rows)
    squares = torch.stack([(column[part].double() - mean).square().sum(0) for part in parts]).sum(0)
    variance = squares / (len(rows) - 1)
    return mean.float(), variance.sqrt().float()
