"""The dense graph network beside the same graph in PyTorch Geometric.

python benchmarks/cricket_pyg.py [--threads 2] [--preset whole | base]

Both get the same samples, width, rounds and heads, and do one forward and backward pass in turn. The other model is
written as one writes it with HeteroConv: one operator for each kind of edges (166 in the whole graph, 151 without the
earlier balls, as in preset base, of which one network is measured), the same in every round. Its
graphs are built and collated before the clock starts; what that takes is shown apart. Time is the processor's, which
other programs do not change. Needs torch_geometric.
"""

import argparse
import time

import torch
from torch import nn
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn import GATv2Conv, HeteroConv, SAGEConv, TransformerConv

from lockstep.distributed.world import World
from lockstep.workloads.cricket.columns import BALL_FEATURES, CAREER_COLUMNS, STATE_COLUMNS
from lockstep.workloads.cricket.data.samples import Samples
from lockstep.workloads.cricket.network import graph
from lockstep.workloads.cricket.network.edges import edges_of
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, GROUPS, PLAYER_RELATIONS, RELATIONS
from lockstep.workloads.cricket.workload import Cricket


class HeteroModel(nn.Module):
    """Encoders for each node type, HeteroConv with a residual and a norm for each node type, a head on the query."""

    def __init__(
        self, channels: int, rounds: int, heads: int, widths: dict[str, int], triples: list[tuple[str, str, str]]
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(
            {
                node: nn.Sequential(
                    nn.Linear(width, channels), nn.LayerNorm(channels), nn.GELU(), nn.Linear(channels, channels)
                )
                for node, width in widths.items()
            }
        )
        self.query = nn.Parameter(torch.randn(channels) * 0.02)
        self.convs = nn.ModuleList(
            HeteroConv({triple: _operator(triple[1], channels, heads) for triple in triples}, aggr="sum")
            for _ in range(rounds)
        )
        nodes = (*widths, "query")
        self.norms = nn.ModuleList(
            nn.ModuleDict({node: nn.LayerNorm(channels) for node in nodes}) for _ in range(rounds)
        )
        self.head = nn.Sequential(nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, 7))

    def forward(self, data: Batch) -> torch.Tensor:
        """Logits of a batch of graphs."""
        x = {node: encoder(data[node].x) for node, encoder in self.encoders.items()}
        x["query"] = self.query.expand(data["query"].num_nodes, -1)
        for conv, norms in zip(self.convs, self.norms, strict=True):
            attributes = data.collect("edge_attr") if "ball" in self.encoders else {}
            heard = conv(x, data.edge_index_dict, edge_attr_dict=attributes)
            x = {node: norms[node](x[node] + heard[node]) for node in x}
        return self.head(x["query"])


def _operator(relation: str, channels: int, heads: int) -> nn.Module:
    if relation in BALL_RELATIONS:
        return TransformerConv(channels, channels // heads, heads=heads, edge_dim=1)
    if relation == "distant_precedes":
        return SAGEConv(channels, channels, aggr="mean")
    return GATv2Conv(channels, channels // heads, heads=heads, add_self_loops=False)


def graphs_of(samples: Samples) -> list[HeteroData]:
    """Each sample as a graph of its own, without earlier balls where the samples have none."""
    graphs = [_context(samples, number) for number in range(len(samples))]
    if samples.present.shape[1]:
        edges = edges_of(samples, frozenset(RELATIONS))
        for number, data in enumerate(graphs):
            _add_balls(data, samples, edges, number)
    return graphs


def _context(samples: Samples, number: int) -> HeteroData:
    data = HeteroData()
    for node, columns in STATE_COLUMNS.items():
        data[node].x = samples.state[number : number + 1, columns]
    for node, columns in CAREER_COLUMNS.items():
        data[node].x = samples.career[number : number + 1, columns]
    data["query"].num_nodes = 1
    single = torch.zeros(2, 1, dtype=torch.int64)
    for triple in graph.all_triples():
        if triple[0] != "ball":
            data[triple].edge_index = single
    return data


def _add_balls(data: HeteroData, samples: Samples, edges, number: int) -> None:
    there = samples.present[number]
    skipped, balls = int((~there).sum()), int(there.sum())
    data["ball"].x = samples.ball[number, there]
    for place, relation in enumerate(BALL_RELATIONS):
        _between(data, relation, edges.allowed[number, place, skipped:, skipped:])
        target, source = data["ball", relation, "ball"].edge_index.flip(0)
        attribute = edges.number[place, skipped:, skipped:] + edges.own_number[number, place, skipped:, None]
        data["ball", relation, "ball"].edge_attr = attribute[target, source][:, None]
    _between(data, "distant_precedes", edges.distant[skipped:, skipped:] > 0)
    people, gap = samples.ball_people[number, there, :2], torch.arange(balls)[:, None] - torch.arange(balls)
    _between(data, "same_matchup", (people[:, None] == people[None]).all(-1) & (gap > 0))
    masks = dict(zip(PLAYER_RELATIONS, edges.players[number][:, there], strict=True))
    ends = [(relation, node, masks[relation]) for relation, node in PLAYER_RELATIONS.items()]
    ends += [("informs", node, torch.arange(balls) >= balls - graph.INFORMING_BALLS) for node in GROUPS["dynamics"]]
    ends.append(("attends", "query", torch.ones(balls, dtype=torch.bool)))
    for relation, node, mask in ends:
        source = mask.nonzero().squeeze(1)
        data["ball", relation, node].edge_index = torch.stack([source, torch.zeros_like(source)])


def _between(data: HeteroData, relation: str, mask: torch.Tensor) -> None:
    target, source = mask.nonzero(as_tuple=True)
    data["ball", relation, "ball"].edge_index = torch.stack([source, target])


def timed(action) -> float:
    """Seconds of the processor for one call."""
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", choices=("whole", "base"), default="whole")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = Cricket().preset(arguments.preset).replace(matches=40, members=1)
    problem = Cricket().problem(config, World())
    network = config.network.build(problem, config)
    data = problem.train
    widths = {node: cut.stop - cut.start for node, cut in (STATE_COLUMNS | CAREER_COLUMNS).items()}
    triples = [triple for triple in graph.all_triples() if data.lengths != (0,) or triple[0] != "ball"]
    if data.lengths != (0,):
        widths["ball"] = len(BALL_FEATURES)
    sizes = config.network
    peer = HeteroModel(sizes.hidden_dim, sizes.num_layers, sizes.num_heads, widths, triples)
    generator = torch.Generator().manual_seed(0)
    # Each length of history as often as it comes.
    counts = [max(round(arguments.batch * size / sum(data.sizes)), 1) for size in data.sizes]
    index = [torch.randint(size, (count,), generator=generator) for size, count in zip(data.sizes, counts, strict=True)]
    labels, samples = [data.labels(group, part) for group, part in enumerate(index)], sum(counts)

    def dense() -> None:
        for group, (part, label) in enumerate(zip(index, labels, strict=True)):
            logits = network(data.inputs(group, part), torch.arange(len(part)))
            (nn.functional.cross_entropy(logits, label, reduction="sum") / samples).backward()

    graphs = [one for group, part in enumerate(index) for one in graphs_of(data.inputs(group, part))]
    batch, every_label = Batch.from_data_list(graphs), torch.cat(labels)

    def sparse() -> None:
        nn.functional.cross_entropy(peer(batch), every_label).backward()

    # In turns, so that what else the machine does meets both.
    found = [(timed(dense), timed(sparse)) for _ in range(arguments.rounds + 1)][1:]
    ours, theirs = (min(column) for column in zip(*found, strict=True))
    collating = timed(lambda: Batch.from_data_list(graphs))
    print(f"{samples} samples, {sizes.hidden_dim} channels, {sizes.num_layers} rounds, {sizes.num_heads} heads")
    for name, model, seconds in (("Lockstep", network, ours), ("PyTorch Geometric", peer, theirs)):
        weights = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"{name:20} {samples / seconds:8.1f} samples/s of processor time   {weights:.1f} M weights")
    each = collating / samples * 1e3
    print(
        f"{'ratio':20} {theirs / ours:8.1f}   ({(theirs + collating) / ours:.1f} with {each:.1f} ms to collate a graph)"
    )


if __name__ == "__main__":
    main()
