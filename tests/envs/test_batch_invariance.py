"""Environments that are said to be batch-invariant have the same bits in a batch of any size."""

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.rl.problem import TeamProblem
from lockstep.workloads import registry

CPU = torch.device("cpu")


def made(workload, changes):
    kind = registry.load(workload)
    config = kind.preset("debug").replace(device="cpu", **changes)
    return kind.problem(config, World(device=CPU))


@pytest.mark.parametrize("width", [1, 3, 130])
@pytest.mark.parametrize(
    ("workload", "changes"),
    [
        ("snake", {}),
        ("snake", {"distance_reward_scale": 0.1}),
        ("snakes3v3", {"self_play": 0}),
        *(
            ("trading", {"market": m, "n_envs": 1024, "total_timesteps": 8192})
            for m in ("stochastic", "regime", "jumps")
        ),
    ],
)
def test_a_lane_alone_has_the_bits_that_it_has_among_others(workload, changes, width):
    problem = made(workload, changes)
    assert problem.batch_invariant
    index = torch.arange(4 * width)
    team = isinstance(problem, TeamProblem)
    make = problem.make_env if team else problem.environments
    whole, parts = make(index, 5), [make(part, 5) for part in index.split(width)]
    assert torch.equal(whole.reset(), torch.cat([part.reset() for part in parts]))
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        shape = (4 * width, problem.observation_shape[0]) if team else (4 * width,)
        action = torch.randint(0, problem.actions.count, shape, generator=generator)
        together = whole.step(action)
        apart = [part.step(share) for part, share in zip(parts, action.split(width), strict=True)]
        for name in ("observation", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(together, name), torch.cat([getattr(part, name) for part in apart])), name
        for name, values in together.info.items():
            # Not a number until an episode ends, and NaN equals nothing.
            joined = torch.cat([part.info[name] for part in apart])
            assert torch.equal(values.nan_to_num(-1.5), joined.nan_to_num(-1.5)), name
