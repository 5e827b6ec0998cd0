"""Snakes 3v3 as one usually writes it, one board in plain Python: the yardstick for the batched game."""

import random

UP, DOWN, LEFT, RIGHT = range(4)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
SEARCH_ORDER = (RIGHT, DOWN, UP, LEFT)


class PlainSnakesGame:
    """One board with a list of cells for each snake; rules as in `lockstep.workloads.snakes3v3`."""

    def __init__(self, width=20, height=10, players=6, beans=5, max_steps=200, seed=0):
        self.width, self.height, self.players, self.bean_count, self.max_steps = (
            width,
            height,
            players,
            beans,
            max_steps,
        )
        self.cells = [(row, column) for row in range(height) for column in range(width)]
        self.random = random.Random(seed)

    def reset(self):
        """Start an episode."""
        self.snakes, self.directions, self.beans, self.time = [], [], [], 1
        taken = set()
        while len(self.snakes) < self.players:
            direction, body = self.random.randrange(4), [self.random.choice(self.cells)]
            while len(body) < 3:
                body.insert(0, self.neighbour(body[0], direction))
            if taken.isdisjoint(body):
                taken.update(body)
                self.snakes.append(body)
                self.directions.append(direction)
        self.top_up()

    def step(self, actions):
        """Returns rewards, deaths and whether the episode ended."""
        rewards = [self.move(player, action) for player, action in enumerate(actions)]
        dead = self.collisions()
        for player in dead:
            rewards[player] += 3 - len(self.snakes[player])
            self.snakes[player] = []
        found = [self.respawn(player) for player in dead]
        self.top_up()
        self.time += 1
        full = self.bean_count + sum(map(len, self.snakes)) > len(self.cells)
        return rewards, dead, self.time > self.max_steps or full or not all(found)

    def move(self, player, action):
        """Move one snake; returns 1 if it ate."""
        if action == self.directions[player] ^ 1:
            action = self.random.choice([other for other in range(4) if other != action])
        self.directions[player] = action
        snake = self.snakes[player]
        head = self.neighbour(snake[0], action)
        snake.insert(0, head)
        if head in self.beans:
            self.beans.remove(head)
            return 1
        snake.pop()
        return 0

    def collisions(self):
        """The players whose head lies on any other segment."""
        owners, dead = {}, set()
        for player, snake in enumerate(self.snakes):
            for position, cell in enumerate(snake):
                if cell not in owners:
                    owners[cell] = player
                    continue
                if position == 0:
                    dead.add(player)
                if self.snakes[owners[cell]][0] == cell:
                    dead.add(owners[cell])
        return sorted(dead)

    def respawn(self, player):
        """Put a dead snake on the first three connected free cells; returns whether there are any."""
        taken = self.taken()
        for start in self.cells:
            body = [] if start in taken else self.three_cells(start, taken)
            if len(body) == 3:
                self.snakes[player] = body
                self.directions[player] = self.turn(body)
                return True
        return False

    def three_cells(self, start, taken):
        """Up to three connected free cells, breadth first from the start."""
        found, looked = [start], 0
        while looked < len(found):
            for direction in SEARCH_ORDER:
                cell = self.neighbour(found[looked], direction)
                if cell not in taken and cell not in found:
                    found.append(cell)
                    if len(found) == 3:
                        return found
            looked += 1
        return found

    def turn(self, body):
        """Order the three cells of a new snake; returns its direction."""
        if body[1][0] != body[2][0] and body[1][1] != body[2][1]:
            body[0], body[1] = body[1], body[0]
        (row, column), (second_row, second_column) = body[0], body[1]
        if row == second_row:
            return RIGHT if column > second_column else LEFT
        return DOWN if row > second_row else UP

    def top_up(self):
        """Put beans on free cells until there are enough."""
        missing = self.bean_count - len(self.beans)
        if missing:
            taken = self.taken()
            free = [cell for cell in self.cells if cell not in taken]
            self.beans += self.random.sample(free, min(missing, len(free)))

    def taken(self):
        """The cells that are not free."""
        taken = set(self.beans)
        for snake in self.snakes:
            taken.update(snake)
        return taken

    def neighbour(self, cell, direction):
        """The next cell on the torus."""
        down, right = MOVES[direction]
        return (cell[0] + down) % self.height, (cell[1] + right) % self.width
