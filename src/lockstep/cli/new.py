"""`lockstep new` and `lockstep examples`: files to start from, written anew or copied."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.config.fields import nearest
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import show

USAGE = "lockstep new NAME"
EXAMPLES_USAGE = (
    "lockstep examples [NAME] [--into DIR]\n\n"
    "Without a NAME, lists the examples that come with Lockstep. With one, prints it, or copies it into a folder."
)
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
        raise UserError(f"{shown(name)}: not a module name; allowed: lower-case letters, digits and _, as in maze")
    folder = Path(options.into) / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder}: already exists; choose another name, or remove it") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be created ({error.strerror}); choose another place with --into") from error
    for template, target in _TEMPLATES.items():
        text = (files("lockstep.cli") / "templates" / template).read_text(encoding="utf-8")
        written = text.replace("@name@", name).replace("@Name@", _class_name(name))
        (folder / target.format(name=name)).write_text(written, encoding="utf-8")
    show(f"{folder}/ has {name}.py, test_{name}.py and README.md; next:")
    show(f"  cd {folder}")
    show(f"  lockstep check ./{name}.py")
    show(f"  lockstep train ./{name}.py --preset debug")
    return 0


@dataclass(frozen=True, kw_only=True)
class ExamplesOptions:
    """Where an example is copied to."""

    into: str = ""
    """Folder to copy the example into; none = print it."""


def examples(arguments: list[str]) -> int:
    """The verb `examples`."""
    command.offer_help(arguments, lambda _: command.help_text(EXAMPLES_USAGE, ExamplesOptions))
    options, names = command.take_words(arguments, ExamplesOptions())
    known = example_files()
    if len(names) > 1 or (options.into and not names):
        raise UserError(f"examples: {len(names)} names given; allowed: one, as `lockstep examples` lists them")
    if not names:
        width = max(map(len, known))
        for name, path in known.items():
            show(f"{name:{width}}  {_first_line(path)}")
        show("\nprint one with `lockstep examples maze`, copy it with `lockstep examples maze --into .`")
        return 0
    path = _example(names[0], known)
    if options.into:
        _copy(path, Path(options.into))
    else:
        print(path.read_text(encoding="utf-8"), end="")
    return 0


_EXAMPLE_KINDS = {".py", ".sbatch", ".yaml", ".sh"}


def example_files() -> dict[str, Path]:
    """The examples by their names: maze for maze.py, slurm/train.sbatch for a file in a folder."""
    package = Path(__file__).parents[1]
    # The wheel has them in the package (setup.py puts them there); a checkout at its root.
    places = (package / "examples", package.parents[1] / "examples")
    folder = next((place for place in places if place.is_dir()), places[0])
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.suffix in _EXAMPLE_KINDS}
    # Not all of them: an example that was run there leaves runs behind.
    known = {name.as_posix().removesuffix(".py"): path for path, name in names.items() if "runs" not in name.parts}
    if not known:
        raise UserError(f"{folder}: the examples are missing; install lockstep-train again")
    return known


def _example(name: str, known: dict[str, Path]) -> Path:
    label = name.removeprefix("examples/").removesuffix(".py")
    if label not in known:
        near = nearest(label, list(known))
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"{shown(name)}: no such example; {hint}known: {', '.join(known)}")
    return known[label]


def _copy(source: Path, folder: Path) -> None:
    target = folder / source.name
    if not folder.is_dir():
        raise UserError(f"--into {shown(str(folder))}: no such folder; make it first, or choose another")
    try:
        # "x": a file of the user's that has this name stays as it is.
        with target.open("x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UserError(f"{target}: already exists; copy into another folder with --into") from None
    except OSError as error:
        raise UserError(f"{target}: not written ({error.strerror}); choose another place with --into") from error
    show(f"{target}: {_first_line(source)}")


def _first_line(path: Path) -> str:
    """What an example shows: the first sentence of its docstring or of its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line.strip('"# ') for line in lines if line.startswith(('"""', "# "))), "")
    return re.split(r"(?<=\.) ", first)[0]


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
