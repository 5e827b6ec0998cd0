"""`lockstep new NAME`: a folder to start from, with an environment that trains as it is, a test and a README."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.config.values import shown
from lockstep.errors import UserError

USAGE = "lockstep new NAME"
_TEMPLATES = {"env.py.txt": "{name}.py", "test.py.txt": "test_{name}.py", "README.md.txt": "README.md"}


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """Where the folder is made."""

    into: str = "."
    """Folder in which the new one is made."""


def new(arguments: list[str]) -> int:
    """The verb `new`."""
    name, rest = command.take_subject(arguments, "name", lambda _: command.help_text(USAGE, NewOptions))
    options, rest = command.take(rest, NewOptions())
    if rest:
        raise UserError(f"{shown(rest[0])}: unknown argument; usage: {USAGE}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise UserError(f"{shown(name)}: not a name for a module; allowed: small letters, digits and _, such as maze")
    folder = Path(options.into) / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder}: exists already; choose another name, or remove it") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another place with --into") from error
    for template, target in _TEMPLATES.items():
        text = (files("lockstep.cli") / "templates" / template).read_text(encoding="utf-8")
        written = text.replace("@name@", name).replace("@Name@", _class_name(name))
        (folder / target.format(name=name)).write_text(written, encoding="utf-8")
    print(f"{folder}/ has {name}.py, test_{name}.py and README.md; next:")
    print(f"  cd {folder}")
    print(f"  lockstep check ./{name}.py")
    print(f"  lockstep train ./{name}.py --preset debug")
    return 0


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
