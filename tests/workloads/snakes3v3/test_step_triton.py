"""The Triton kernels equal the dense step: in Triton's interpreter, and on a GPU if there is one."""

import pytest
import torch

from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import GameRules
from lockstep.workloads.snakes3v3.engine.step import FusedStep

SEED = 2**40 + 5
ROOMY = GameRules(max_steps=30)
# So crowded that snakes find no room to respawn, and games end early.
CROWDED = GameRules(width=9, height=6, players=5, teams=((0,), (1,), (2,), (3,), (4,)), beans=5, max_steps=6)


class Fused:
    """A game that is stepped and restarted by the kernels."""

    def __init__(self, rules, index, device):
        self.game = SnakesGame(rules, index, SEED, device, sparse=False)
        self.moves = FusedStep(self.game, SEED)

    def step(self, action):
        return self.moves.step(action)


def assert_equal(ours, theirs, rules):
    body = theirs.grid[:, : rules.cells] > 1
    for name, expected in theirs.tensors().items():
        found = ours.tensors()[name]
        # The trail is undefined for cells without a snake.
        found, expected = (found[body], expected[body]) if name == "trail" else (found, expected)
        assert torch.equal(found, expected), name


def play(rules, boards, steps, device):
    """Play the same random actions with both; returns the number of deaths and of games that ended."""
    index = torch.arange(boards) * 7
    theirs, ours = SnakesGame(rules, index, SEED, device, sparse=False), Fused(rules, index, device)
    everywhere = torch.ones(boards, dtype=torch.bool, device=device)
    theirs.restart(everywhere)
    ours.moves.restart(everywhere)
    assert_equal(ours.game, theirs, rules)
    numbers = torch.Generator().manual_seed(4)
    deaths = ends = 0
    for _ in range(steps):
        action = torch.randint(0, 4, (boards, rules.players), generator=numbers).to(device)
        expected, (reward, died, ended) = theirs.step(action), ours.step(action)
        assert torch.equal(reward, expected.reward)
        assert torch.equal(died, expected.dead)
        assert torch.equal(ended, expected.ended)
        assert_equal(ours.game, theirs, rules)
        theirs.restart(expected.ended)
        ours.moves.restart(ended)
        assert_equal(ours.game, theirs, rules)
        deaths, ends = deaths + int(died.sum()), ends + int(ended.sum())
    return deaths, ends


def test_kernels_play_the_same_game_step_by_step(interpret):
    interpret(__file__)


def test_the_kernels_can_be_built_for_a_gpu(build_kernels):
    from lockstep.workloads.snakes3v3.engine import step_triton

    built = build_kernels(step_triton, "step_kernel", "restart_kernel")
    game = Fused(CROWDED, torch.arange(2), torch.device("cpu"))
    game.moves.restart(torch.ones(2, dtype=torch.bool))
    game.step(torch.zeros(2, CROWDED.players, dtype=torch.int64))
    assert built == ["restart_kernel", "step_kernel"]


@pytest.mark.gpu
@pytest.mark.parametrize("rules", [ROOMY, CROWDED], ids=["roomy", "crowded"])
def test_kernels_play_the_same_game_on_a_gpu(rules):
    deaths, ends = play(rules, 512, 100, torch.device("cuda"))
    assert deaths > 512
    assert ends > 512


if __name__ == "__main__":
    assert play(ROOMY, 2, 6, torch.device("cpu"))[0] > 0
    deaths, ends = play(CROWDED, 2, 7, torch.device("cpu"))
    assert deaths > 0
    assert ends > 0
