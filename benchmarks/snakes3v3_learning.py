"""How strong a team is after some gradient updates: for comparing settings of 3v3 Snakes at equal budgets.

python benchmarks/snakes3v3_learning.py [--updates 400,800] [--games 200] [FIELD=VALUE]...

Trains preset small with networks of 64 and constant learning rates, on one thread, with the fields that are given, and
plays against greedy and random players after each number of updates, half of the games from each side.
"""

import argparse
import time

import torch

from lockstep.config.sources import resolve
from lockstep.distributed.world import World
from lockstep.workloads.snakes3v3.matches.arena import play_games
from lockstep.workloads.snakes3v3.observations.observe import observe
from lockstep.workloads.snakes3v3.workload import Snakes3v3


def told(result):
    (own, _), (other, _) = result.score(0), result.score(1)
    return f"{own:.1f} : {other:.1f}, {result.wins / result.games:.1%} won, {result.losses / result.games:.1%} lost"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", default="400,800")
    parser.add_argument("--games", type=int, default=200)
    args, fields = parser.parse_known_args()
    torch.set_num_threads(1)
    begin = Snakes3v3().preset("small").replace(n_steps=20, lr_schedule="constant", hidden_size=64)
    config = resolve(begin, overrides=fields).config
    learner = Snakes3v3().build(config, World().with_lanes(config.effective_lanes, "fast"))

    def team(game, players):
        return learner.model(observe(game, config.workload.observation, tuple(players)))[0].argmax(-1)

    seconds = 0.0
    for goal in map(int, args.updates.split(",")):
        start = time.process_time()
        while learner.gradient_updates < goal:
            report = learner.step()[0]
        seconds += time.process_time() - start
        with torch.no_grad():
            games = [play_games(team, name, args.games, seed=77) for name in ("greedy", "random")]
        print(
            f"{' '.join(fields) or 'small'}: {learner.gradient_updates} updates, {learner.steps:,} steps, "
            f"{seconds:.0f} s of processor time; against greedy {told(games[0])}; against random {told(games[1])}; "
            f"entropy {report['train/entropy'].mean:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
