"""A run's directory while one world writes to it."""

import contextlib
from collections.abc import Callable, Iterator

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.launch.environment import job
from lockstep.storage import checkpoint_retention
from lockstep.storage.run_directory import RunDirectory


@contextlib.contextmanager
def opened(run: RunDirectory, world: World) -> Iterator[Callable[[], None]]:
    """The run's directory, written to by this world only; where rank 0 cannot have it, all ranks raise its error.

    Gives what raises on rank 0 once a later world has taken the directory over.
    """
    check: Callable[[], None] = lambda: None  # noqa: E731
    with contextlib.ExitStack() as stack:

        def open_it() -> None:
            nonlocal check
            with disk_errors():
                # Our launcher has made the directory; under another one it is removed if the start is refused.
                stack.enter_context(run.prepared(keeps=job() is not None))
                check = stack.enter_context(run.locked(job())).check
                checkpoint_retention.sweep(run.path)
                run.write_system(world)

        world.led(open_it)
        yield check


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """A disk that refuses to be written to ends the run with one line."""
    try:
        yield
    except OSError as error:
        where = error.filename or "the run's directory"
        raise RunFailed(
            f"{where}: cannot be written ({error.strerror}); make room, then the same command continues"
        ) from error
