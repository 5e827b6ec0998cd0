"""A trained team for the competition's platform. Needs only this file, the `weights.npz` beside it, and numpy.

Lockstep copies this file as it is, so it imports nothing else of Lockstep and runs on old versions of Python. It sees
one board at a time, as the platform shows it, and computes the observations that the team was trained with.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns of the actions 0 up, 1 down, 2 left, 3 right; `^ 1` gives the opposite action."""
# The constants below are those of the training observations (rich.py); they must agree.
START_LENGTH, MAX_STEPS = 3, 200
RADIUS, SEARCH_DEPTH, LONG = 4, 8, 20
REACH = range(-RADIUS, RADIUS + 1)
NEAR = [(down, right) for down in REACH for right in REACH if 0 < abs(down) + abs(right) <= RADIUS]
MOST_BEANS, MOST_OTHERS = 5, 5


class Board:
    """One observation of the platform, with the own team's snakes first."""

    def __init__(self, observation: dict[Any, Any]) -> None:
        self.width, self.height = observation["board_width"], observation["board_height"]
        self.beans = [tuple(bean) for bean in observation[1]]
        # Integer keys above 1 are snakes; key 1 holds the beans.
        codes = sorted(key for key in observation if isinstance(key, int) and key > 1)
        # Six snakes are two teams of three; with any other number each plays for itself.
        teams = [codes[:3], codes[3:]] if len(codes) == 6 else [[code] for code in codes]
        me = observation["controlled_snake_index"]
        self.side = [me in team for team in teams].index(True)
        order = [code for team in teams[self.side :] + teams[: self.side] for code in team]
        self.team, self.me = len(teams[self.side]), order.index(me)
        """The number of our snakes, and which of them is to act."""
        self.snakes = [[tuple(cell) for cell in observation[code]] for code in order]
        self.by_code = dict(zip(order, self.snakes, strict=True))
        self.reborn: set[int] = set()
        """The snakes that died in the last step and came back."""
        self.ranks = [codes.index(code) for code in order]
        """The players' numbers, which break ties between equal distances."""
        self.code, self.stays = {bean: 1 for bean in self.beans}, {}
        """The code of each cell that is not empty, and for how many more moves a snake's part remains on it."""
        for number, snake in enumerate(self.snakes):
            for place, cell in enumerate(snake):
                self.code[cell], self.stays[cell] = number + 2, len(snake) - place

    def compare(self, before: dict[int, list[Any]] | None) -> None:
        """Find out who came back, from the snakes by code one step before; None: there was none."""
        # A snake that moved has its old cells behind its new head.
        for number, (code, snake) in enumerate(self.by_code.items()):
            if before is not None and snake[1:] != before[code][: len(snake) - 1]:
                self.reborn.add(number)

    def moved(self, cell: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
        """The cell that a move leads to."""
        return (cell[0] + move[0]) % self.height, (cell[1] + move[1]) % self.width

    def gap(self, here: tuple[int, int], there: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns between two cells, the shorter way round the torus."""

        def short(gap: int, size: int) -> int:
            # Half way round, the gap keeps its sign, as in training.
            return gap if abs(gap) <= size // 2 else gap - (size if gap > 0 else -size)

        return short(there[0] - here[0], self.height), short(there[1] - here[1], self.width)

    def steps(self, here: tuple[int, int], there: tuple[int, int]) -> int:
        """Moves between two cells on an empty board."""
        down, right = self.gap(here, there)
        return abs(down) + abs(right)

    def direction(self, number: int) -> int:
        """A snake's direction: away from its second cell; the platform does not report it."""
        head, second = self.snakes[number][:2]
        if number not in self.reborn:
            return MOVES.index(self.gap(second, head))
        # The game's rule for a snake that came back ignores that the board wraps: across an edge it faces itself.
        return (3 if head[1] > second[1] else 2) if head[0] == second[0] else (1 if head[0] > second[0] else 0)

    def is_open(self, cell: tuple[int, int]) -> bool:
        """Whether the cell holds no snake."""
        return self.code.get(cell, 0) <= 1


def jidi26(board: Board, me: int, time: int) -> list[float]:
    """Head, its four neighbours, beans, the other heads."""
    return _own_cells(board, me) + _padded(_flat(board.beans), 2 * MOST_BEANS) + _heads(board, me, MOST_OTHERS)


def guide30(board: Board, me: int, time: int) -> list[float]:
    """Head, its four neighbours, two nearest beans, threats, beans, two heads."""
    threats = []
    for number in [other for other in range(len(board.snakes)) if other != me][:2]:
        threats.append(_nearness(board, me, number) * len(board.snakes[number]) / START_LENGTH)
    # Two zeros follow the beans, as in the guide's vector.
    beans = _padded(_flat(board.beans), 2 * MOST_BEANS + 2)
    return (
        _own_cells(board, me)
        + _near_beans(board, me, 2.0 * board.width)
        + _padded(threats, 2)
        + beans
        + _heads(board, me, 2)
    )


def final35(board: Board, me: int, time: int) -> list[float]:
    """Head, its four neighbours, beans, two nearest beans, own length, the other heads, threats of enemies."""
    own = len(board.snakes[me])
    # The own team comes first, so enemies start at index `team`.
    rivals = range(board.team, len(board.snakes))[:2]
    threats = [_nearness(board, me, number) * len(board.snakes[number]) / own for number in rivals]
    start = _own_cells(board, me) + _padded(_flat(board.beans), 2 * MOST_BEANS) + _near_beans(board, me, 0.0)
    return [*start, own / 20, *_heads(board, me, MOST_OTHERS), *_padded(threats, 2)]


def rich(board: Board, me: int, time: int) -> list[float]:
    """Itself, the four directions, the beans, the other players, and the cells near the head."""
    return (
        _itself(board, me, time) + _ways(board, me) + _beans(board, me) + _others(board, me) + _surroundings(board, me)
    )


def _own_cells(board: Board, me: int) -> list[float]:
    head = board.snakes[me][0]
    return [*head, *(board.code.get(board.moved(head, move), 0) for move in MOVES)]


def _heads(board: Board, me: int, count: int) -> list[float]:
    heads = [snake[0] for number, snake in enumerate(board.snakes) if number != me]
    return _padded(_flat(heads[:count]), 2 * count)


def _nearness(board: Board, me: int, other: int) -> float:
    down, right = board.gap(board.snakes[me][0], board.snakes[other][0])
    return 1 / (np.hypot(down, right) + 1e-8 + 1)


def _near_beans(board: Board, me: int, absent: float) -> list[float]:
    gaps = [board.gap(board.snakes[me][0], bean) for bean in board.beans]
    # Python's sort is stable: of equally near beans the first in the list comes first, as in training.
    near = sorted([(right, down, float(np.hypot(down, right))) for down, right in gaps], key=lambda bean: bean[2])
    return _flat((near + [(0, 0, absent)] * 2)[:2])


def _itself(board: Board, me: int, time: int) -> list[float]:
    scores = [len(snake) - START_LENGTH for snake in board.snakes]
    # Sums of scores decide the game.
    team, enemies = sum(scores[: board.team]), sum(scores[board.team :])
    direction = [float(board.direction(me) == way) for way in range(4)]
    return [*direction, scores[me] / LONG, 1 - (time - 1) / MAX_STEPS, team / LONG, (team - enemies) / LONG]


def _ways(board: Board, me: int) -> list[float]:
    head, back, numbers = board.snakes[me][0], board.direction(me) ^ 1, []
    heads = {snake[0]: number for number, snake in enumerate(board.snakes) if number != me}
    for way, move in enumerate(MOVES):
        cell = board.moved(head, move)
        onward = [board.moved(cell, second) for second in MOVES]
        # Other heads beside the target cell could move there in the same step.
        rivals = [heads[other] for other in onward if other in heads]
        mates = sum(number < board.team for number in rivals)
        next_open = [other for other in onward if board.is_open(other)]
        beyond = [board.moved(other, third) for other in next_open for third in MOVES]
        further = sum(board.is_open(third) for third in beyond if third != cell)
        stays = board.stays.get(cell, 0)
        numbers += [way == back, stays > 1, stays == 1, mates / 2, (len(rivals) - mates) / 2]
        numbers += [cell in board.beans, len(next_open) / 3, further / 9, _search(board, cell) / SEARCH_DEPTH]
    return [float(number) for number in numbers]


def _search(board: Board, start: tuple[int, int]) -> int:
    """Moves from a cell to the nearest bean, avoiding all snakes; at most SEARCH_DEPTH. Breadth first."""
    waiting, seen = deque([(start, 0)]), {start}
    while waiting and board.is_open(start):
        cell, steps = waiting.popleft()
        if board.code.get(cell) == 1 or steps == SEARCH_DEPTH:
            return steps
        for move in MOVES:
            following = board.moved(cell, move)
            if following not in seen and board.is_open(following):
                seen.add(following)
                waiting.append((following, steps + 1))
    return SEARCH_DEPTH


def _beans(board: Board, me: int) -> list[float]:
    head, far, rows = board.snakes[me][0], board.width // 2 + board.height // 2, []
    for bean in board.beans:
        (down, right), own = board.gap(head, bean), board.steps(head, bean)
        steps = [board.steps(snake[0], bean) for snake in board.snakes]
        # Without teammates or enemies: farther than any cell.
        mates = min([steps[number] for number in range(board.team) if number != me], default=2 * far)
        enemies = min(steps[board.team :], default=2 * far)
        way = [1, 2 * down / board.height, 2 * right / board.width, own / far]
        rows.append((own, [*way, (mates - own) / far, (enemies - own) / far]))
    rows.sort(key=lambda row: row[0])
    return _padded(_flat([row for _, row in rows]), 6 * MOST_BEANS)


def _others(board: Board, me: int) -> list[float]:
    head, far, rows = board.snakes[me][0], board.width // 2 + board.height // 2, []
    for number, snake in enumerate(board.snakes):
        if number == me:
            continue
        (down, right), steps, is_mate = board.gap(head, snake[0]), board.steps(head, snake[0]), number < board.team
        way = [1 if is_mate else -1, 2 * down / board.height, 2 * right / board.width, steps / far]
        # Sort keys: teammates first, then by distance, ties by player number.
        rows.append(
            ((not is_mate, steps, board.ranks[number]), [*way, len(snake) / LONG, *MOVES[board.direction(number)]])
        )
    rows.sort(key=lambda row: row[0])
    return _padded(_flat([row for _, row in rows]), 7 * MOST_OTHERS)


def _surroundings(board: Board, me: int) -> list[float]:
    cells = [board.moved(board.snakes[me][0], move) for move in NEAR]
    mates = [board.snakes[number][0] for number in range(board.team) if number != me]
    enemies = [snake[0] for snake in board.snakes[board.team :]]
    stays = [min(board.stays.get(cell, 0), 2 * RADIUS) / (2 * RADIUS) for cell in cells]
    flags = [[float(cell in things) for cell in cells] for things in (mates, enemies, board.beans)]
    return stays + _flat(flags)


def _flat(rows: Any) -> list[float]:
    return [number for row in rows for number in row]


def _padded(numbers: list[float], count: int) -> list[float]:
    # Vectors have a fixed length: zeros for absent players and beans.
    return (numbers + [0.0] * count)[:count]


OBSERVATIONS = {"jidi26": jidi26, "guide30": guide30, "final35": final35, "rich": rich}


def forward(weights: dict[str, Any], team: Any) -> Any:
    """The network's outputs (A, 4) for the observations (A, D) of the team, layer by layer in numerical order."""
    layers = sorted({int(name.split(".")[0]) for name in weights if name[0].isdigit()})
    for number in layers:
        layer = {name.split(".", 2)[2]: weights[name] for name in weights if name.startswith(f"{number}.")}
        if f"{number}.relu.at" in weights:
            team = np.maximum(team, 0)
        elif f"{number}.linear.weight" in weights:
            team = team @ layer["weight"].T + layer["bias"]
        else:
            # A bidirectional LSTM: the second direction reads the team backwards.
            team = np.concatenate((_lstm(layer, team, ""), _lstm(layer, team[::-1], "_reverse")[::-1]), axis=1)
    return team


def _lstm(layer: dict[str, Any], sequence: Any, suffix: str) -> Any:
    """One direction of an LSTM along the team, with PyTorch's parameter names."""
    cell = hidden = np.zeros(layer["weight_hh_l0" + suffix].shape[1])
    outputs = []
    for features in sequence:
        gates = layer["weight_ih_l0" + suffix] @ features + layer["bias_ih_l0" + suffix]
        gates = gates + layer["weight_hh_l0" + suffix] @ hidden + layer["bias_hh_l0" + suffix]
        # PyTorch's order of the gates.
        input_gate, forget_gate, cell_gate, output_gate = np.split(gates, 4)
        cell = _sigmoid(forget_gate) * cell + _sigmoid(input_gate) * np.tanh(cell_gate)
        hidden = _sigmoid(output_gate) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def _sigmoid(value: Any) -> Any:
    return 1 / (1 + np.exp(-value))


class Player:
    """The team's network, and the time in the current game of each side."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights = weights
        self.observe = OBSERVATIONS[bytes(weights["observation"]).decode()]
        # By side, because one process may play both teams of a game.
        self.times: dict[int, int] = {}
        self.seen: dict[int, list[dict[int, list[Any]] | None]] = {}
        """The snakes of the last step, if there was one, and of this one."""

    def act(self, observation: dict[Any, Any]) -> int:
        """The action of the snake that is to act; the platform asks for the team's snakes one after the other."""
        board = Board(observation)
        # The platform does not report the time. No last direction means a new game; each call for the first snake is a
        # new step.
        if observation["last_direction"] is None:
            self.times[board.side], self.seen[board.side] = 1, [None, board.by_code]
        elif board.me == 0:
            self.times[board.side] = self.times.get(board.side, 1) + 1
            self.seen[board.side] = [self.seen.get(board.side, [None, None])[1], board.by_code]
        time = self.times.get(board.side, 1)
        board.compare(self.seen.get(board.side, [None])[0])
        team = np.array([self.observe(board, number, time) for number in range(board.team)], dtype=np.float32)
        return int(forward(self.weights, team)[board.me].argmax())


# The player, once it is loaded: the platform calls a function and keeps no object between calls.
_players: list[Player] = []


def my_controller(observation: dict[Any, Any], action_space: Any, is_act_continuous: bool = False) -> list[list[int]]:
    """The function that the platform calls: returns the action of one snake as a one-hot list [[0, 0, 0, 1]]."""
    if not _players:
        with np.load(Path(__file__).parent / "weights.npz", allow_pickle=False) as file:
            _players.append(Player({name: file[name] for name in file.files}))
    action = _players[0].act(observation)
    return [[int(way == action) for way in range(4)]]
