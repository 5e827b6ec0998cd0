"""Safe points: places in a long update or evaluation at which all ranks can abandon it, to stop within seconds."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from lockstep.distributed.world import World

# The wanted seconds between two questions: less would only cost time, more would let a user wait.
_SHORTEST, _LONGEST = 0.5, 1.0
# A question carries the request, below it whether a rank is busy, and below that the milliseconds since the last one.
_BUSY = 1 << 32
_REQUEST = 2 * _BUSY


class UpdateAbandoned(Exception):
    """All ranks left an update or an evaluation halfway because a stop was requested.

    After an update what the learner holds is of no use; an evaluation changes nothing of it.
    """

    def __init__(self, request: int) -> None:
        super().__init__(f"stop request {request}")
        self.request = request


class SafePoints:
    """Asks the world at some of the safe points whether any rank was told to stop. Closed, it costs nothing.

    Every rank must pass the same safe points in the same order, between the same collectives. A question is a
    collective itself, so ranks take the choice of the points at which they ask from what they have agreed on before.
    """

    def __init__(self, world: World, requested: Callable[[], int]) -> None:
        """`requested`: this rank's stop request, 0 if there is none."""
        self._world, self._requested = world, requested
        self._open = self._in_update = False
        self._paces: dict[str, _Pace] = {}
        self._asked = 0.0

    def open(self, is_open: bool, *, in_update: bool = False) -> None:
        """Start asking in the update or evaluation that begins now, or leave it alone. Every rank says the same."""
        self._open, self._paces, self._asked = is_open, {}, time.monotonic()
        self._in_update = in_update

    @contextlib.contextmanager
    def watching_layers(self, model: nn.Module) -> Iterator[None]:
        """Leave an update between two layers as well, forward and backward: a large batch takes a CPU a minute.

        For a world of one. Several ranks would have to ask each other in the midst of the exchange of gradients.
        """
        own = {id(module) for module in model.modules()}

        def before(module: nn.Module, _: object) -> None:
            # A module of an environment's or of a transform's is left alone: what is raised inside somebody's code is
            # taken for a failure of that code.
            if id(module) in own:
                self._layer()

        # For all modules together: some compute differently, and in other bits, if they have hooks of their own.
        handles = [register_module_forward_pre_hook(before)]
        handles += [parameter.register_hook(self._layer) for parameter in model.parameters() if parameter.requires_grad]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layer(self, *_: object) -> None:
        if self._open and self._in_update and (request := self._requested()):
            raise UpdateAbandoned(request)

    def __call__(self, part: str, busy: bool = True) -> bool:
        """Pass a safe point in a part of the update (acting, learning); UpdateAbandoned on all ranks to stop.

        Where ranks have unequal amounts of work, one that is done goes on passing points with `busy` False until this
        returns False: the world has agreed that no rank is busy any more, and all have passed equally many points.
        """
        if not self._open:
            return False
        # Points of one part may be seconds apart where those of another are milliseconds apart.
        pace = self._paces.setdefault(part, _Pace())
        pace.until_next -= 1
        # Between two questions it is not known whether the others are done.
        return self._ask(pace, busy) if not pace.until_next else True

    def _ask(self, pace: "_Pace", busy: bool) -> bool:
        since = min(int(1000 * (time.monotonic() - self._asked)), _BUSY - 1)
        # The largest over all ranks: any request counts, else whether any is busy, else the slowest rank's time.
        question = _REQUEST * self._requested() + _BUSY * busy + since
        request, rest = divmod(self._world.agree(question), _REQUEST)
        any_busy, slowest = divmod(rest, _BUSY)
        if request:
            raise UpdateAbandoned(request)
        if pace.is_new:
            # The time since the last question was spent in another part.
            pace.is_new = False
        elif slowest < 1000 * _SHORTEST:
            pace.every *= 2
        elif slowest > 1000 * _LONGEST and pace.every > 1:
            pace.every //= 2
        pace.until_next, self._asked = pace.every, time.monotonic()
        return bool(any_busy)


@dataclass
class _Pace:
    """At which safe points of a part the world is asked."""

    every: int = 1
    until_next: int = 1
    is_new: bool = True
