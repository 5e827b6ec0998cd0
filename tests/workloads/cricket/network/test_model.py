"""The whole network: what its prediction depends on, and that every weight is trained."""

from dataclasses import replace

import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.cricket.data.samples import Deliveries, gather, group_lengths
from lockstep.workloads.cricket.network import graph
from lockstep.workloads.cricket.network.encoders import Scaling, Vocabulary
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, OTHER_BALL_RELATIONS, RELATIONS, kept_relations
from lockstep.workloads.cricket.network.model import CricketNetwork, Sizes
from lockstep.workloads.cricket.network.variants import VARIANTS
from lockstep.workloads.cricket.problem import scales_of

PRIOR = torch.tensor([0.4, 0.3, 0.1, 0.01, 0.1, 0.04, 0.05])


EVERYTHING = kept_relations("")


def network(variant="base", dropped="", dropout=0.1, layers=3):
    torch.manual_seed(5)
    kept = kept_relations(dropped)
    sizes = Sizes(16, layers, 2, dropout, 0.2, 8, kept, VARIANTS[variant])
    built = CricketNetwork(sizes, Vocabulary(4, 5, 40), PRIOR)
    # Random weights: initially the last layers are zero and FiLM is the identity, so gradients would be zero.
    for parameter in built.parameters():
        if parameter.dim() > 1:
            parameter.data += torch.randn_like(parameter) * 0.1
    return built


def test_the_graph_has_sixteen_relations_and_166_kinds_of_edges():
    assert len(RELATIONS) == len(set(RELATIONS)) == 16
    assert len(graph.all_triples()) == len(set(graph.all_triples())) == 166
    assert {relation for _, relation, _ in graph.all_triples()} == set(RELATIONS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_weight_of_every_variant_is_trained(make_table, variant):
    table, built = make_table([70, 60]), network(variant)
    samples = gather(table, table.phase(), table.sample[5:120:5], 70)
    logits = built(samples, torch.arange(len(samples.state)))
    assert logits.shape == (23, 7)
    (logits * torch.randn_like(logits)).sum().backward()
    untouched = [name for name, p in built.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert untouched == []


def test_an_untrained_network_predicts_the_outcome_frequencies(make_table):
    table = make_table([30])
    sizes = Sizes(16, 2, 2, 0.0, 0.0, 8, EVERYTHING, VARIANTS["full"])
    built = CricketNetwork(sizes, Vocabulary(4, 5, 40), PRIOR)
    found = built(gather(table, table.phase(), table.sample, 29), None).softmax(1)
    torch.testing.assert_close(found, PRIOR.expand_as(found) / PRIOR.sum())


def test_features_are_standardised_and_outliers_clipped(make_table):
    table = make_table([30])
    scales = scales_of(table)
    samples = gather(table, table.phase(), table.sample, 29)
    scaled = Scaling(scales)(samples)
    torch.testing.assert_close(scaled.state.mean(0), torch.zeros(scaled.state.shape[1]), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.career.std(0), torch.ones(scaled.career.shape[1]), atol=1e-3, rtol=0)
    samples.state[0] = 1e6
    assert float(Scaling(scales)(samples).state.max()) == 8.0


def test_more_padding_does_not_change_the_prediction(make_table):
    table, built = make_table([50, 40]), network("full")
    rows = torch.tensor([3, 20, 49, 70])
    short, long = (built(gather(table, table.phase(), rows, length), None) for length in (49, 83))
    torch.testing.assert_close(short, long, atol=1e-5, rtol=1e-4)


def test_the_delivery_itself_and_later_ones_do_not_change_the_prediction(make_table):
    table, built = make_table([50, 40]), network("full")
    rows = torch.tensor([10, 30, 60])
    before = built(gather(table, table.phase(), rows, 49), None)
    for row in rows.tolist():
        ball, people, ids = table.ball.clone(), table.people.clone(), table.ball_ids.clone()
        ball[row:], ids[row:] = 7.0, 3
        people[row + 1 :] = 59
        altered = replace(
            table, ball=ball, ball_ids=ids, people=people, label=torch.full_like(table.label, 6), runs=table.runs + 1
        )
        after = built(gather(altered, altered.phase(), torch.tensor([row]), 49), None)
        torch.testing.assert_close(after[0], before[rows.tolist().index(row)], atol=1e-6, rtol=1e-5)


def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(make_table):
    table, built = make_table([50, 40]), network("hybrid")
    samples = gather(table, table.phase(), table.sample[:60], 49)
    noise = torch.arange(60) * 77777
    whole = built(samples, noise)
    part = built(type(samples)(**{k: v[20:25] for k, v in vars(samples).items()}), noise[20:25])
    torch.testing.assert_close(part, whole[20:25], atol=1e-5, rtol=1e-4)


def test_id_dropout_hides_a_player_everywhere_in_a_sample():
    tables, noise, ids = network().embeddings, torch.arange(5000) * 1234567, torch.full((5000,), 3)
    hidden = tables.hide("player", ids, noise) == 0
    assert 0.17 < float(hidden.float().mean()) < 0.23
    history = tables.hide("player", ids[:, None].repeat(1, 4), noise)
    assert torch.equal(history == 0, hidden[:, None].expand(-1, 4))
    assert torch.equal(tables.hide("player", ids, None), ids)


def test_dropped_relations_have_no_weights(make_table):
    table, whole = make_table([40]), network()
    samples = gather(table, table.phase(), table.sample, 39)
    for relation in RELATIONS:
        less = network(dropped=relation)
        assert sum(p.numel() for p in less.parameters()) < sum(p.numel() for p in whole.parameters())
        assert torch.isfinite(less(samples, None)).all()
    for dropped in ("ball", "faced_by, partnered_by,bowled_by,informs,attends"):
        no_balls = network(dropped=dropped)
        assert no_balls.balls is None and torch.isfinite(no_balls(samples, None)).all()
    silent = network(dropped=",".join((*BALL_RELATIONS, *OTHER_BALL_RELATIONS)))
    assert silent.rounds[0].balls is None and silent.balls is not None


def test_unknown_relations_and_a_graph_without_a_query_are_refused():
    with pytest.raises(UserError, match=r"same_bowlr.*nearest is same_bowler"):
        kept_relations("same_bowlr")
    with pytest.raises(UserError, match="nothing reaches the prediction"):
        kept_relations("attends,drives")


def test_samples_are_grouped_by_the_length_of_their_history(make_table):
    table = make_table([50, 21, 2, 1])
    assert group_lengths(50, 4) == (13, 25, 37, 49)
    data = Deliveries(table, group_lengths(table.longest, 4))
    assert sum(data.sizes) == table.samples == 49 + 20 + 1
    # Histories of 1 to 13 balls: thirteen of the first innings, thirteen of the second, one of the third.
    assert data.sizes == (27, 12 + 7, 12, 12)
    seen = torch.cat([data._rows[group][torch.arange(size)] for group, size in enumerate(data.sizes)])
    assert torch.equal(seen.sort().values, table.sample)
    samples = data.inputs(1, torch.arange(19))
    assert samples.present.shape == (19, 25)
    assert torch.equal(samples.present.sum(1), data._rows[1] - table.first[data._rows[1]])
    assert bool(samples.present[:, -1].all())
    assert torch.equal(samples.ball[:, -1], table.ball[data._rows[1] - 1].float())
    assert torch.equal(data.labels(1, torch.arange(19)), table.label[data._rows[1]])


def test_without_balls_there_is_one_group(make_table):
    table = make_table([30, 9])
    data = Deliveries(table, (29,), balls=False)
    assert data.sizes == (37,) and data.inputs(0, torch.arange(5)).present.shape == (5, 0)
