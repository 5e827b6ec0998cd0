"""What exchanging gradients would cost the presets `base` on several H200s, by bytes and known speeds alone.

python benchmarks/scaling_bytes.py [--links 400:20,12.5:50] [--ranks 8,64] [--weak]

A prediction from the speed of one H200 as documented, and the gradients of the preset. Compute is taken to shrink with
every rank, which small shares do not, so this is the best that a link allows: `lockstep bench WORKLOAD --preset base
--ranks 1 --predict N --bandwidth B --latency L` on the GPU measures the compute of a share, too. A link is GB/s and
microseconds of the smallest exchange between two ranks; latency grows along NCCL's tree. With --weak (--scaling weak)
batches grow with the ranks, so that a step of the world needs fewer gradient updates.
"""

import argparse

from lockstep.cli.bench.cost_model import Exchanges, Link, Share, forecast

# workload: steps/s of one H200 (docs/results.md), steps for each gradient update, numbers in each gradient of one.
KNOWN = {
    "snake": (402_000, 8192 / 4, [667_013]),
    "snakes3v3": (701_000, 4096, [805_896, 402_948]),
    "trading": (535_000, 16384 / 4, [745_484]),
    # 16 environments and an update for every four of their steps; base itself has one environment, so one lane.
    "control": (1_068, 4, [4_427_102, 533_516]),
    "cricket": (99_000, 2048, [23_153_372]),
}


def best(name, ranks, link, weak):
    """A world whose compute is divided evenly."""
    speed, steps, gradients = KNOWN[name]
    steps *= ranks if weak else 1
    exchanges = Exchanges(sums=len(gradients) / steps, sum_bytes=4 * sum(gradients) / steps)
    return forecast(1 / speed, Share(ranks, 1 / speed / ranks, exchanges), link, ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default="400:20,12.5:50")
    parser.add_argument("--ranks", default="8,64")
    parser.add_argument("--weak", action="store_true")
    options = parser.parse_args()
    links = [tuple(map(float, link.split(":"))) for link in options.links.split(",")]
    worlds = [(int(ranks), link) for ranks in options.ranks.split(",") for link in links]
    columns = [f"{ranks} GPUs, {link[0]:g} GB/s" for ranks, link in worlds]
    print(f"| workload | gradients | updates/s of one | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}")
    for name, (speed, steps, gradients) in KNOWN.items():
        cells = [f"{4 * sum(gradients) / 1e6:.1f} MB", f"{speed / steps:,.0f}"]
        for ranks, (bandwidth, latency) in worlds:
            found = best(name, ranks, Link(1e9 * bandwidth, 1e-6 * latency, 0.0, tree=True), options.weak)
            cells.append(f"{found.efficiency:.0%} ({found.limit})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
