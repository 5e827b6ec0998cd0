"""Snake on many boards at once, as plain tensors. E: boards, N: grid size, C = N*N cells, F: frames in an observation.

A cell is its flat index row*N + column. Actions and directions are 0 left, 1 right, 2 up, 3 down, so `^ 1` reverses.
A step is a few operations over (E,) and three writes into the boards, so its cost does not depend on the board's size.
"""

import torch
from torch import Tensor

from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.workloads.snake.food import WordsAhead, food_word, free_cell
from lockstep.workloads.snake.rules import SnakeRules

LEFT, RIGHT, UP, DOWN = range(4)
ACTIONS = ("left", "right", "up", "down")


def neighbours(grid_size: int) -> Tensor:
    """(C*4,) at c*4+d the cell next to cell c in direction d; c itself if that is outside the board."""
    cell = torch.arange(grid_size**2)
    row, column = cell // grid_size, cell % grid_size
    last = grid_size - 1
    sideways = cell - (column > 0).long(), cell + (column < last).long()
    upright = cell - grid_size * (row > 0).long(), cell + grid_size * (row < last).long()
    return torch.stack((*sideways, *upright), dim=1).flatten()


class SnakeEnv:
    """A `VectorEnv` of Snake boards; state is updated in place, so that a step can be captured as a CUDA graph."""

    def __init__(
        self, rules: SnakeRules, index: Tensor, seed: int, device: torch.device, sparse: bool | None = None
    ) -> None:
        """`index` (E,): each board's number over the whole run. Call `reset` or `load` before the first step.

        `sparse`: process only the boards that need food or a restart, which waits for the device to count them;
        otherwise all boards take part in every operation. The results are the same. Default: only on the CPU.
        """
        self.rules, self.seed, self.device = rules, seed, device
        self.index = index.to(device, torch.int64)
        self.count = len(index)
        self.observation_shape = (3 * rules.frame_stack, rules.grid_size, rules.grid_size)
        self.action_count = 4
        self.neighbours = neighbours(rules.grid_size).to(device)
        # `nonzero` synchronises with a GPU, which graph capture forbids; on a CPU it saves most of the work.
        self._sparse = device.type == "cpu" if sparse is None else sparse
        self._words_ahead = WordsAhead(seed, self.index)
        self._make_boards()
        self._make_constants()

    def _make_boards(self) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(self.count, *shape, dtype=dtype, device=self.device)

        cells, frames = self.rules.cells, self.rules.frame_stack
        self.body = zeros(cells, dtype=torch.bool)
        """(E, C) whether the snake lies on the cell, the head included."""
        # With it the tail can follow the body without a list of cells per snake.
        self.trail = zeros(cells, dtype=torch.uint8)
        """(E, C) the direction in which the snake left the cell; only valid on the body."""
        self.head, self.tail, self.food = zeros(), zeros(), zeros()
        """(E,) cells. Food lies under the head only where the board is full."""
        self.direction, self.steps, self.length = zeros(), zeros(), zeros()
        """(E,) of the current episode."""
        self.clock, self.draw = zeros(), zeros()
        """(E,) counters of the random numbers: steps since the start of the run, and foods placed at this clock."""
        self.frames = zeros(frames if frames > 1 else 0, 3, cells, dtype=torch.uint8)
        """(E, F, 3, C) the frames of the observation, the oldest first; empty for F = 1."""

    def _make_constants(self) -> None:
        rules = self.rules
        # Row N//2, column N//2; a snake starts there with three cells in a row, heading right.
        middle = rules.grid_size // 2 * (rules.grid_size + 1)
        self._start_tail, self._start_head = middle - 1, middle + 1
        self._start_body = torch.zeros(1, rules.cells, dtype=torch.bool, device=self.device)
        self._start_body[:, middle - 1 : middle + 2] = True
        # Offsets of each board in flattened tensors: boards (E*C,), and the food and head planes of frames (E*3*C,).
        self._row = torch.arange(self.count, device=self.device) * rules.cells
        self._food_plane, self._head_plane = 3 * self._row + rules.cells, 3 * self._row + 2 * rules.cells
        # Values that scatters write, made once.
        self._set = torch.ones(self.count, dtype=torch.bool, device=self.device)
        self._one = self._set.to(torch.uint8)
        # float64 when a distance is added, so that the sum is rounded to float32 only once.
        dtype = torch.float64 if rules.distance_reward_scale else torch.float32
        outcomes = (rules.death_penalty, rules.food_reward, rules.step_penalty)
        self._rewards = torch.tensor(outcomes, dtype=dtype, device=self.device).unbind()

    def reset(self) -> Tensor:
        """Restart every episode; returns the (E, 3F, N, N) uint8 observation. The clocks are not reset."""
        return self.restart(torch.ones(self.count, dtype=torch.bool, device=self.device))

    def step(self, action: Tensor) -> Transition:
        """Advance every board by one action (E,) int64 and restart those whose episode ended."""
        if self.rules.truncates or self.rules.distance_reward_scale:
            return self._advance_and_restart(action)
        # Without truncation no final observation is needed, so boards that ate and boards that restart can get their
        # food in one operation.
        died, ate, late = self._move(action)
        reward, terminated, truncated, info = self._judge(died, ate, late)
        self._set_up(terminated)
        self._place_food(ate | terminated)
        frame = self._frame()
        self._push(frame)
        return Transition(self._refill(terminated, frame), reward, terminated, truncated, info=info)

    def _advance_and_restart(self, action: Tensor) -> Transition:
        transition = self.advance(action)
        if self.rules.truncates:
            transition.final_observation = transition.observation
        transition.observation = self.restart(transition.terminated | transition.truncated)
        return transition

    def advance(self, action: Tensor) -> Transition:
        """`step` without the restart: a board whose episode ended stays as it ended until `restart`."""
        distance = self._distance() if self.rules.distance_reward_scale else None
        died, ate, late = self._move(action)
        self._place_food(ate & (self.length < self.rules.cells))
        approach = None if distance is None else distance - self._distance()
        reward, terminated, truncated, info = self._judge(died, ate, late, approach)
        return Transition(self._push(self._frame()), reward, terminated, truncated, info=info)

    def restart(self, ended: Tensor) -> Tensor:
        """Restart the episodes of the boards in the mask (E,); returns the observation of all boards."""
        self._set_up(ended)
        self._place_food(ended)
        return self._refill(ended, self._frame())

    def state(self) -> dict[str, Tensor]:
        """Copies of everything needed to continue, each with E as its first axis."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Continue from a state that `state` returned; returns the observation to act on."""
        for name, tensor in self._tensors().items():
            if state[name].shape != tensor.shape:
                found, needed = tuple(state[name].shape), tuple(tensor.shape)
                raise UserError(f"snake state: {name} has shape {found}, these rules and boards need {needed}")
            tensor.copy_(state[name])
        # The cache was drawn for the old clocks.
        self._words_ahead.forget()
        if self.rules.frame_stack > 1:
            return self.frames.clone().view(self.count, *self.observation_shape)
        return self._push(self._frame())

    def cells(self, board: int) -> list[int]:
        """List the cells of one board's snake, from tail to head."""
        trail, size = self.trail[board].tolist(), self.rules.grid_size
        snake = [int(self.tail[board])]
        for _ in range(int(self.length[board]) - 1):
            snake.append(snake[-1] + (-1, 1, -size, size)[trail[snake[-1]]])
        return snake

    def _tensors(self) -> dict[str, Tensor]:
        names = ("body", "trail", "head", "tail", "food", "direction", "steps", "length", "clock", "draw", "frames")
        return {name: getattr(self, name) for name in names}

    def _move(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Turn and move every snake; returns (E,) bool each: died, ate, out of time."""
        if self._sparse:
            self._words_ahead.tick()
        # The clock never restarts with an episode, so no random number is used twice in a run.
        self.clock.add_(1)
        self.draw.zero_()
        self.steps.add_(1)
        body, trail = self.body.view(-1), self.trail.view(-1)
        # An action that would reverse the snake is ignored.
        self.direction.copy_(torch.where(action == self.direction ^ 1, self.direction, action))
        # A step off the board leads to the head's own cell, which is body: hitting the wall needs no special case.
        ahead = self.neighbours.index_select(0, torch.add(self.direction, self.head, alpha=4))
        died = body.index_select(0, self._row + ahead)
        late = self.steps >= self.rules.step_limit
        if not self.rules.truncates:
            died |= late
        ate = (ahead == self.food) & ~died
        # Dead snakes are written too, without effect: their head's trail is never read, their cells are already set.
        trail.scatter_(0, self._row + self.head, self.direction.to(torch.uint8))
        # The tail's cell is freed after the collision test: moving onto the tail is a death even though it moves away.
        tail_cell = self._row + self.tail
        after_tail = torch.add(trail.index_select(0, tail_cell), self.tail, alpha=4)
        tail_stays = died | ate
        body.scatter_(0, tail_cell, tail_stays)
        self.tail.copy_(torch.where(tail_stays, self.tail, self.neighbours.index_select(0, after_tail)))
        self.head.copy_(torch.where(died, self.head, ahead))
        body.scatter_(0, self._row + self.head, self._set)
        self.length.add_(ate)
        return died, ate, late

    def _judge(
        self, died: Tensor, ate: Tensor, late: Tensor, approach: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Reward, terminated, truncated and info of the move; approach (E,): by how many cells the food got closer."""
        death, food, nothing = self._rewards
        reward = torch.where(died, death, torch.where(ate, food, nothing))
        if approach is not None:
            reward = (reward + self.rules.distance_reward_scale * approach.to(reward.dtype)).to(torch.float32)
        won = self.length == self.rules.cells
        terminated = died | won
        # A win or a death on the last step is not a truncation: nothing is left to bootstrap.
        truncated = late & ~terminated if self.rules.truncates else torch.zeros_like(late)
        return reward, terminated, truncated, {"length": self.length.clone(), "won": won}

    def _set_up(self, ended: Tensor) -> None:
        """Reset the snakes of the boards in the mask to the start of an episode."""
        if self._sparse:
            rows = ended.nonzero().squeeze(1)
            self.body.index_copy_(0, rows, self._start_body.expand(len(rows), -1))
            self.trail.index_fill_(0, rows, RIGHT)
        else:
            self.body.copy_(torch.where(ended[:, None], self._start_body, self.body))
            self.trail.masked_fill_(ended[:, None], RIGHT)
        self.head.masked_fill_(ended, self._start_head)
        self.tail.masked_fill_(ended, self._start_tail)
        self.direction.masked_fill_(ended, RIGHT)
        self.steps.masked_fill_(ended, 0)
        self.length.masked_fill_(ended, 3)

    def _place_food(self, needs: Tensor) -> None:
        """Place new food on the boards in the mask, on a free cell."""
        if self._sparse:
            rows = needs.nonzero().squeeze(1)
            word = self._words_ahead.of(rows, self.clock, self.draw)
            cell = free_cell(self.body.index_select(0, rows), self.length.index_select(0, rows), word)
            self.food.index_copy_(0, rows, cell)
        else:
            word = food_word(self.seed, self.index, self.clock, self.draw)
            cell = free_cell(self.body, self.length, word)
            self.food.copy_(torch.where(needs, cell, self.food))
        self.draw.add_(needs)

    def _distance(self) -> Tensor:
        """(E,) Manhattan distance between head and food."""
        size = self.rules.grid_size
        return (self.head // size - self.food // size).abs() + (self.head % size - self.food % size).abs()

    def _frame(self) -> Tensor:
        """(E, 3, C) uint8 planes of body, food and head as the boards are now."""
        frame = torch.zeros(self.count, 3, self.rules.cells, dtype=torch.uint8, device=self.device)
        frame[:, 0].copy_(self.body)
        flat = frame.view(-1)
        # Food under the head (a full board) is not shown: there is none.
        flat.scatter_(0, self._food_plane + self.food, (self.food != self.head).to(torch.uint8))
        flat.scatter_(0, self._head_plane + self.head, self._one)
        return frame

    def _push(self, frame: Tensor) -> Tensor:
        """Append the newest frame to the stack; returns the observation."""
        if self.rules.frame_stack > 1:
            frame = torch.cat((self.frames[:, 1:], frame[:, None]), dim=1)
            self.frames.copy_(frame)
        return frame.view(self.count, *self.observation_shape)

    def _refill(self, ended: Tensor, frame: Tensor) -> Tensor:
        """Fill the stacks of the boards in the mask with copies of their frame; returns the whole observation."""
        if self.rules.frame_stack > 1:
            frame = torch.where(ended[:, None, None, None], frame[:, None], self.frames)
            self.frames.copy_(frame)
        return frame.view(self.count, *self.observation_shape)
