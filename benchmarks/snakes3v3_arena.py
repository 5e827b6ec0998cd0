"""The scripted teams of 3v3 Snakes against each other, beside what an independent program measured in 200 games.

python benchmarks/snakes3v3_arena.py [--games 1000] [--seed 1]

The first team of each row plays on the first side. Printed is a Markdown table; the last column says by how many
standard errors of both measurements together the farthest of the four numbers lies off. Ends with 1 beyond four.
"""

import argparse
import math
import sys

from lockstep.workloads.snakes3v3.matches.arena import play_games

PUBLISHED = {
    ("random", "random"): (0.89, 0.71, 65, 50),
    ("greedy", "random"): (20.86, 0.78, 194, 4),
    ("greedy", "greedy"): (10.96, 10.85, 97, 100),
    ("level1", "random"): (5.92, 0.83, 165, 17),
    ("level3", "random"): (12.89, 0.74, 192, 3),
    ("level4", "random"): (13.93, 0.93, 187, 4),
    ("evasive", "random"): (15.80, 0.72, 193, 2),
    ("level1", "greedy"): (2.20, 15.21, 11, 184),
    ("level3", "greedy"): (6.96, 12.04, 58, 133),
    ("level4", "greedy"): (7.79, 12.55, 60, 137),
    ("evasive", "greedy"): (9.80, 12.99, 62, 128),
    ("evasive", "level4"): (9.95, 8.40, 108, 86),
}
"""Both scores, and wins and losses of the first team."""
PUBLISHED_GAMES = 200
MOST_ERRORS = 4.0


def deviation(result, published):
    """The farthest of the four numbers, in standard errors."""
    *scores, wins, losses = published
    found = []
    for side, score in enumerate(scores):
        mean, half = result.score(side)
        found.append((mean - score) / (half / 1.96 * math.sqrt(1 + result.games / PUBLISHED_GAMES)))
    for count, other in ((result.wins, wins), (result.losses, losses)):
        share = (count + other) / (result.games + PUBLISHED_GAMES)
        error = math.sqrt(max(share * (1 - share), 1e-4) * (1 / result.games + 1 / PUBLISHED_GAMES))
        found.append((count / result.games - other / PUBLISHED_GAMES) / error)
    return max(found, key=abs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=1000, help="games of each pair")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("| | score | won / lost / drawn | deaths | published | off by |\n|---|---|---|---|---|---|")
    worst = 0.0
    for pair, published in PUBLISHED.items():
        result = play_games(*pair, args.games, args.seed, both_sides=False)
        off = deviation(result, published)
        worst = max(worst, abs(off))
        (own, own_half), (other, other_half) = result.score(0), result.score(1)
        shares = " / ".join(f"{count / result.games:.1%}" for count in (result.wins, result.losses, result.draws))
        deaths = " : ".join(f"{side['deaths']:.1f}" for side in result.summary()["sides"])
        print(
            f"| {pair[0]} v {pair[1]} | {own:.2f} ± {own_half:.2f} : {other:.2f} ± {other_half:.2f} | {shares} | "
            f"{deaths} | {published[0]:.2f} : {published[1]:.2f}, {published[2] / 2:g}% won | {off:+.1f} |",
            flush=True,
        )
    sys.exit(worst > MOST_ERRORS)


if __name__ == "__main__":
    main()
