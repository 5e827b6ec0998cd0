"""One round of the dense network equals PyTorch Geometric's HeteroConv on the same graph with the same weights."""

import pytest
import torch

from lockstep.workloads.cricket.data.samples import gather
from lockstep.workloads.cricket.network import graph
from lockstep.workloads.cricket.network.edges import edges_of
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, CONTEXT, GROUPS, PLAYER_RELATIONS
from lockstep.workloads.cricket.network.layers import BallLayer, ContextLayer, Nodes, QueryLayer

pyg = pytest.importorskip("torch_geometric.nn")
CHANNELS, HEADS = 8, 2
EVERYTHING = graph.kept_relations("")


def naive_edges(table, row):
    """The edges of one sample by the definitions, pair by pair: {triple: (sources, targets, numbers or None)}."""
    history = range(int(table.first[row]), row)
    people = {i: table.people[i].tolist() for i in history}
    bowler, striker, nonstriker = table.people[row].tolist()
    found = {triple: [] for triple in graph.all_triples() if "ball" in (triple[0], triple[2])}

    def add(relation, source, target, number=None, to="ball"):
        found["ball", relation, to].append((source, target, number))

    for j, source in enumerate(history):
        for i, target in enumerate(history):
            between(add, table, j, i, source, target)
        to_players = {
            ("faced_by", "striker_identity"): people[source][1] == striker,
            ("partnered_by", "nonstriker_identity"): nonstriker in people[source][1:],
            ("bowled_by", "bowler_identity"): people[source][0] == bowler,
            ("attends", "query"): True,
        }
        to_players |= {("informs", node): j >= len(history) - 12 for node in GROUPS["dynamics"]}
        for (relation, node), holds in to_players.items():
            if holds:
                add(relation, j, 0, to=node)
    return found


def between(add, table, j, i, source, target):
    """The edges from one ball to another, the j-th and the i-th of the innings."""
    (bowler, batter, _), (other_bowler, other_batter, _) = table.people[source].tolist(), table.people[target].tolist()
    gap = i - j
    if 1 <= gap <= 6:
        add("recent_precedes", j, i, gap / 6)
    elif 7 <= gap <= 24:
        add("medium_precedes", j, i, (gap - 6) / 18)
    elif gap > 24 and gap % 6 == 0:
        add("distant_precedes", j, i)
    if gap and bowler == other_bowler:
        add("same_bowler", j, i, abs(gap) / 24)
    if gap and batter == other_batter:
        add("same_batsman", j, i, abs(gap) / 60)
    if gap > 0 and (bowler, batter) == (other_bowler, other_batter):
        add("same_matchup", j, i)
    if gap > 0 and table.over[source] == table.over[target]:
        add("same_over", j, i, min(int(table.ball_in_over[target]) / 5, 1.0))


def random_(*shape):
    return torch.randn(*shape) * 0.3


class Reference:
    """A HeteroConv whose weights are copied to our layers."""

    def __init__(self, context, query, balls):
        self.context, self.query, self.balls = context, query, balls
        self.convs = {}
        for layer in (context, query, balls):
            for parameter in layer.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        # Terms that several relations add to one target are summed into our single one.
        for shared in (context.bias, query.bias, balls.messages.root.weight, balls.messages.root.bias):
            torch.nn.init.zeros_(shared)
        for triple in graph.all_triples():
            self.convs[triple] = self.make(triple)
        self.hetero = pyg.HeteroConv(self.convs, aggr="sum")

    def make(self, triple):
        source, relation, target = triple
        if relation in BALL_RELATIONS:
            return self.transformer(relation)
        if relation == "distant_precedes":
            conv = pyg.SAGEConv(CHANNELS, CHANNELS, aggr="mean")
            ours = self.balls.messages
            set_(conv.lin_l.weight, ours.distant.weight)
            set_(conv.lin_l.bias, random_(CHANNELS))
            set_(conv.lin_r.weight, random_(CHANNELS, CHANNELS))
            ours.root.weight.data += conv.lin_r.weight.data
            ours.root.bias.data += conv.lin_l.bias.data
            return conv
        conv = pyg.GATv2Conv(CHANNELS, CHANNELS // HEADS, heads=HEADS, add_self_loops=False)
        for parameter in conv.parameters():
            set_(parameter, random_(*parameter.shape))
        self.bias_of(target).data += conv.bias.data
        if source != "ball":
            # One edge: the message is the source's projection, whatever the attention weights are.
            self.matrix_of(triple).copy_(conv.lin_l.weight.data.T)
            self.bias_of(target).data += conv.lin_l.bias.data
            return conv
        ours, number = self.attention_of(relation, target)
        cut = slice(number * CHANNELS, (number + 1) * CHANNELS)
        set_(conv.lin_l.weight, ours.source.weight[cut])
        set_(conv.lin_l.bias, ours.source.bias[cut])
        if relation == "same_matchup":
            set_(conv.lin_r.weight, ours.target.weight)
            set_(conv.lin_r.bias, ours.target.bias)
            set_(conv.att, ours.attention[None])
        else:
            set_(conv.lin_r.weight, ours.target.weight[number].T)
            set_(conv.lin_r.bias, ours.target.bias[number])
            set_(conv.att, ours.attention[number][None])
        return conv

    def transformer(self, relation):
        conv = pyg.TransformerConv(CHANNELS, CHANNELS // HEADS, heads=HEADS, edge_dim=1)
        ours, number = self.balls.messages.attention, BALL_RELATIONS.index(relation)
        cut = slice(number * CHANNELS, (number + 1) * CHANNELS)
        for theirs, layer in ((conv.lin_query, ours.query), (conv.lin_key, ours.key), (conv.lin_value, ours.value)):
            set_(theirs.weight, layer.weight[cut])
            # The key's bias changes nothing, so any will do.
            set_(theirs.bias, random_(CHANNELS) if layer.bias is None else layer.bias[cut])
        set_(conv.lin_edge.weight, ours.edge[number].reshape(-1, 1))
        set_(conv.lin_skip.weight, random_(CHANNELS, CHANNELS))
        set_(conv.lin_skip.bias, random_(CHANNELS))
        self.balls.messages.root.weight.data += conv.lin_skip.weight.data
        self.balls.messages.root.bias.data += conv.lin_skip.bias.data
        return conv

    def bias_of(self, target):
        if target == "ball":
            return self.balls.messages.root.bias
        return self.query.bias if target == "query" else self.context.bias[CONTEXT.index(target)]

    def matrix_of(self, triple):
        source, relation, target = triple
        if target == "query":
            layer = self.query.drives if relation == "drives" else self.query.attends
            number = GROUPS["dynamics"].index(source) if relation == "drives" else CONTEXT.index(source)
            return layer.weight.data[:, number * CHANNELS : (number + 1) * CHANNELS].T
        messages = self.context.messages
        if relation == "conditions":
            groups = list(GROUPS.values())
            below = next(number for number, nodes in enumerate(groups) if target in nodes)
            row, column = (nodes.index(node) for nodes, node in ((groups[below], target), (groups[below - 1], source)))
            cut = [slice(number * CHANNELS, (number + 1) * CHANNELS) for number in (row, column)]
            return messages.down[below - 1].weight.data[cut[0], cut[1]].T
        edges = [triple for triple in graph.context_pairs() if triple[1] != "conditions"]
        return messages.across.weight.data[edges.index(triple)]

    def attention_of(self, relation, target):
        if relation == "same_matchup":
            return self.balls.messages.matchup, 0
        if relation == "informs":
            return self.context.informs, GROUPS["dynamics"].index(target)
        if relation == "attends":
            return self.query.from_balls, 0
        return self.context.from_balls, list(PLAYER_RELATIONS).index(relation)

    def messages(self, table, row, context, query, balls):
        x = {node: context[number][None] for number, node in enumerate(CONTEXT)} | {"query": query[None], "ball": balls}
        single = torch.zeros(2, 1, dtype=torch.int64)
        index = {triple: single for triple in graph.all_triples() if triple[0] != "ball"}
        numbers = {}
        for triple, edges in naive_edges(table, row).items():
            if triple[0] == "ball":
                index[triple] = torch.tensor([[s for s, _, _ in edges], [t for _, t, _ in edges]], dtype=torch.int64)
                if triple[1] in BALL_RELATIONS:
                    numbers[triple] = torch.tensor([[n] for _, _, n in edges], dtype=torch.float32).view(-1, 1)
        return self.hetero(x, index, edge_attr_dict=numbers)


def set_(parameter, value):
    with torch.no_grad():
        parameter.copy_(value)


def test_one_round_equals_pytorch_geometric(make_table):
    torch.manual_seed(1)
    table = make_table([60, 33])
    layers = [kind(CHANNELS, HEADS, EVERYTHING, 0.0, "x") for kind in (ContextLayer, QueryLayer, BallLayer)]
    reference = Reference(*layers)
    rows, length = torch.tensor([1, 2, 25, 59, 61, 92]), 60
    samples = gather(table, table.phase(), rows, length)
    edges = edges_of(samples, EVERYTHING)
    context, query = random_(len(rows), len(CONTEXT), CHANNELS), random_(len(rows), CHANNELS)
    balls = random_(len(rows), length, CHANNELS)
    for layer in layers:
        layer.norm = torch.nn.Identity()
    nodes = Nodes(context, query, balls)
    ours_after = [layers[0](nodes, edges, None, None), layers[1](nodes, edges, None, None)]
    ours_after.append(layers[2](balls, edges, None, None))
    for number, row in enumerate(rows.tolist()):
        past = row - int(table.first[row])
        expected = reference.messages(table, row, context[number], query[number], balls[number, length - past :])
        for place, node in enumerate(CONTEXT):
            torch.testing.assert_close(ours_after[0][number, place] - context[number, place], expected[node][0])
        torch.testing.assert_close(ours_after[1][number] - query[number], expected["query"][0])
        ours = ours_after[2][number, length - past :] - balls[number, length - past :]
        torch.testing.assert_close(ours, expected["ball"])
