"""`lockstep watch`: a page on this machine that shows runs while they train."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lockstep.cli import argv as command
from lockstep.config.fields import Range
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import tell

USAGE = "lockstep watch [RUN | FOLDER]... [--runs-dir DIR] [--port N] [--open]"


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What is shown, and where."""

    runs_dir: str = "runs"
    """Folder that holds the runs; without a RUN all of them are shown, new ones as they appear."""
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 0
    """Port on this machine's loopback address; 0 = any that is free."""
    open: bool = False
    """Open the page in this machine's browser."""


def watch(arguments: list[str]) -> int:
    """The verb `watch`."""
    command.offer_help(arguments, lambda _: command.help_text(USAGE, WatchOptions))
    options, names = command.take(arguments, WatchOptions())
    if unknown := [name for name in names if name.startswith("-") or "=" in name]:
        raise UserError(f"{shown(unknown[0])}: unknown; watch takes runs, --runs-dir, --port and --open")
    # The default folder may not be there yet: a run may be about to start. One that was named should be.
    if options.runs_dir != WatchOptions.runs_dir and not Path(options.runs_dir).is_dir():
        raise UserError(f"--runs-dir {shown(options.runs_dir)}: no such folder; give the one that holds the runs")
    # Here, since they import the web server.
    from lockstep.watch.guard import new_token
    from lockstep.watch.library import Library
    from lockstep.watch.server import bind, serve

    library, token = Library(Path(options.runs_dir), names), new_token()
    with bind(options.port) as listening:
        port = listening.getsockname()[1]
        address = f"http://127.0.0.1:{port}/?token={token}"
        tell(f"watching {' '.join(names) or options.runs_dir}: {address}")
        tell(f"from another machine: ssh -L {port}:127.0.0.1:{port} HOST, then the same address")
        tell("Ctrl-C ends it")
        with _opened(address) if options.open else nullcontext():
            serve(library, token, listening)
    return 0


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open an address in the browser, by way of a file of this user's that leads there.

    What a browser is started with can be seen by every user of the machine, and the address holds the token.
    """
    import signal
    import tempfile
    import webbrowser

    # The server hands SIGTERM on once it has stopped; by default that would end the process before the file is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A directory of mode 0700; a browser that was started may still have to read the file, so it stays to the end.
    with tempfile.TemporaryDirectory(prefix="lockstep-watch-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">\n')
        webbrowser.open(page.as_uri())
        yield
