"""The batched game against a second implementation of the rules: one board, lists of cells, no tensors."""

from collections import Counter

import numpy as np
import pytest
import torch

from lockstep.compute import random
from lockstep.workloads.snakes3v3.competition.position import position
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules
from lockstep.workloads.snakes3v3.opponents.scripted import greedy_action, random_action

UP, DOWN, LEFT, RIGHT = range(4)
DELTAS = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
CROWDED = GameRules(width=7, height=7)
PLANS = [(SNAKES_3V3, 40, 800, 0.05), (SNAKES_5P, 16, 500, 0.3), (CROWDED, 40, 300, 0.05)]
"""Rules, boards, steps, and the share of random actions; the others are greedy."""
QUICK = [(rules, boards // 4, steps, share) for rules, boards, steps, share in PLANS]


class PlainGame:
    """One board by the rules. The random choices are given from outside."""

    def __init__(self, rules, seen):
        self.rules, self.time = rules, seen.time
        self.snakes = [[tuple(cell) for cell in snake] for snake in seen.snakes]
        self.beans, self.directions = [tuple(bean) for bean in seen.beans], list(seen.directions)

    def step(self, actions, turns):
        """Everything but new beans; turns: how many directions further than a reversal each snake turns."""
        rewards, ate = [0] * len(self.snakes), set()
        for player, action in enumerate(actions):
            if {action, self.directions[player]} in ({UP, DOWN}, {LEFT, RIGHT}) and action != self.directions[player]:
                action = (action + turns[player]) % 4
            self.directions[player] = action
            head = self.beside(self.snakes[player][0], action)
            self.snakes[player].insert(0, head)
            if head in self.beans:
                self.beans.remove(head)
                rewards[player] = 1
                ate.add(player)
            else:
                self.snakes[player].pop()
        segments = Counter(cell for snake in self.snakes for cell in snake)
        dead = [player for player, snake in enumerate(self.snakes) if segments[snake[0]] > 1]
        for player in dead:
            rewards[player] = 3 - len(self.snakes[player]) + (player in ate)
            self.snakes[player] = []
        found = [self.respawn(player) for player in dead]
        self.time += 1
        cells = sum(len(snake) for snake in self.snakes)
        full = self.rules.beans + cells > self.rules.width * self.rules.height
        return rewards, dead, self.time > self.rules.max_steps or full or not all(found)

    def respawn(self, player):
        taken = {cell for snake in self.snakes for cell in snake} | set(self.beans)
        for row in range(self.rules.height):
            for column in range(self.rules.width):
                body = self.search((row, column), taken)
                if len(body) == 3:
                    self.take_place(player, body)
                    return True
        return False

    def search(self, start, taken):
        body = [] if start in taken else [start]
        for cell in body:
            for direction in (RIGHT, DOWN, UP, LEFT):
                other = self.beside(cell, direction)
                if len(body) < 3 and other not in taken and other not in body:
                    body.append(other)
        return body

    def take_place(self, player, body):
        first, second, third = body
        straight = second[0] == third[0] or second[1] == third[1]
        middle = all(any(self.beside(first, d) == other for d in range(4)) for other in (second, third))
        if middle and not straight:
            body = [second, first, third]
        (row, column), (other_row, other_column) = body[0], body[1]
        if row == other_row:
            self.directions[player] = RIGHT if column > other_column else LEFT
        else:
            self.directions[player] = DOWN if row > other_row else UP
        self.snakes[player] = body

    def beside(self, cell, direction):
        down, right = DELTAS[direction]
        return (cell[0] + down) % self.rules.height, (cell[1] + right) % self.rules.width

    def free_cells(self):
        taken = {cell for snake in self.snakes for cell in snake} | set(self.beans)
        return self.rules.width * self.rules.height - len(taken)


def turns(game):
    """(E, P) how far each snake turns from a reversal at this clock: digits to base three of one random number."""
    words = torch.stack(random.random_words(game.seed, "snakes3v3-step", game.index, game.clock // 2))
    word = words[game.clock % 2 * 2, torch.arange(game.count)]
    number = (word * 3**game.rules.players) >> 32
    return [[value // 3**player % 3 + 1 for player in range(game.rules.players)] for value in number.tolist()]


def mixed_actions(game, numbers, share):
    """Greedy actions, for long snakes, mixed with random ones, for deaths and reversals."""
    teams = game.rules.teams
    greedy, anything = (torch.cat([act(game, team) for team in teams], dim=1) for act in (greedy_action, random_action))
    return torch.where(torch.from_numpy(numbers.random(greedy.shape) < share), anything, greedy)


def compare(plain, seen, before):
    """Compare everything, then copy the new beans, which are random, to the plain board."""
    assert [[tuple(cell) for cell in snake] for snake in seen.snakes] == plain.snakes
    alive = [player for player, snake in enumerate(plain.snakes) if snake]
    assert [seen.directions[player] for player in alive] == [plain.directions[player] for player in alive]
    assert seen.time == plain.time
    beans = [tuple(bean) for bean in seen.beans]
    kept = [bean for bean in before if bean in plain.beans]
    new = beans[len(kept) :]
    assert beans[: len(kept)] == kept == plain.beans
    assert len(new) == min(plain.rules.beans - len(kept), plain.free_cells())
    assert len(set(new)) == len(new)
    assert not set(new) & {cell for snake in plain.snakes for cell in snake}
    plain.beans = beans


@pytest.mark.parametrize(
    ("rules", "boards", "steps", "share"), [*QUICK, *(pytest.param(*plan, marks=pytest.mark.slow) for plan in PLANS)]
)
def test_every_step_equals_that_of_the_plain_implementation(rules, boards, steps, share):
    game = SnakesGame(rules, torch.arange(boards) + 7, 11, torch.device("cpu"))
    game.reset()
    plain = [PlainGame(rules, position(game, board)) for board in range(boards)]
    numbers, endings, returns = np.random.default_rng(5), 0, np.zeros((boards, rules.players))
    for _ in range(steps):
        actions, turned = mixed_actions(game, numbers, share), turns(game)
        done = game.step(actions)
        returns += done.reward.numpy()
        results = zip(done.reward.tolist(), done.dead.tolist(), done.ended.tolist(), strict=True)
        for board, (reward, dead, ended) in enumerate(results):
            before = list(plain[board].beans)
            rewards, deaths, over = plain[board].step(actions[board].tolist(), turned[board])
            assert (rewards, over) == (reward, ended)
            assert [player in deaths for player in range(rules.players)] == dead
            compare(plain[board], position(game, board), before)
            if ended:
                assert returns[board].tolist() == [len(snake) - 3 for snake in plain[board].snakes]
        endings += int(done.ended.sum())
        returns[done.ended.numpy()] = 0
        game.restart(done.ended)
        for board in done.ended.nonzero().flatten().tolist():
            plain[board] = PlainGame(rules, position(game, board))
    assert endings >= boards


def test_the_comparison_covers_fifty_thousand_steps():
    assert sum(boards * steps for _, boards, steps, _ in PLANS) >= 50_000
