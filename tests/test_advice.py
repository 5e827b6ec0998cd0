"""What messages and help texts advise works when followed: commands parse, flags exist, packages are real extras."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lockstep
from lockstep.cli.completion import candidates
from lockstep.cli.main import VERBS, main
from lockstep.workloads import registry

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(lockstep.__file__).parent.rglob("*.py"))
UNKNOWN = "\N{WHITE SQUARE}"
"""Stands for what a message fills in."""


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a file, with UNKNOWN where a value is filled in; pieces that are added up stay one text."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else UNKNOWN for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


TEXTS = [(path, text) for path in SOURCES for text in texts(ast.parse(path.read_text()))]


COMMAND = re.compile(rf"`lockstep ([^`]+)`|lockstep ((?:{'|'.join(VERBS)})\b[^`\n;]*)")
"""A command of ours: everything in backticks, elsewhere what begins with a verb."""
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PLACEHOLDERS = {"--field", "--flag", "--no", "--ppo"}
"""How fields, switches and sections are spoken of: --ppo.learning-rate."""
OF_OTHERS = {"--logdir": "tensorboard", "--shm-size": "docker", "--master-port": "torchrun"}
OF_OUR_PROCESSES = {"--model", "--speed"}
"""Flags with which `lockstep watch` starts a player; no user types them."""
OTHER_PACKAGES = {"metaworld", "torch"}


@cache
def flags(verb: str) -> set[str]:
    """Every flag of a verb, with those of all workloads and their algorithms where it takes a workload's fields."""
    found = set(candidates([verb, "--"])) | {"--help"}
    if verb in ("train", "resume", "plan", "sweep", "bench", "check", "verify", "eval", "play", "record"):
        found |= settings()
    return found | {f"--no{flag[1:]}" for flag in found}


@cache
def settings() -> set[str]:
    """The flags that set fields of any workload."""
    found = {"--explain"}
    for name in registry.names():
        workload = registry.load(name)
        layouts = [workload.layout(algorithm=algorithm) for algorithm in workload.algorithms]
        # A network of the user's has settings of its own.
        layouts += [workload.layout(algorithm="ppo", network="my_network.py:make")] if name == "gym" else []
        groups = [group for layout in layouts for group in layout.schema.described()]
        names = {name for group in groups for item in group.fields for name in (item.name, *item.aliases)}
        found |= {f"--{name.replace('_', '-')}" for name in names}
    return found


def commands() -> Iterator[tuple[Path, str]]:
    for path, text in TEXTS:
        for match in COMMAND.finditer(text):
            if not (line := match[1] or match[2]).startswith(UNKNOWN):
                yield path, line


def test_every_command_that_is_named_is_a_verb_with_flags_that_it_has():
    found = list(commands())
    assert len(found) > 100
    verbs = {*VERBS, "help"}
    # A word in capitals stands for any verb.
    assert [place for place in found if (verb := place[1].split()[0]) not in verbs and not verb.isupper()] == []
    of_ours = [(path, line) for path, line in found if line.split()[0] in VERBS]
    assert [place for place in of_ours if not set(FLAG.findall(place[1])) <= flags(place[1].split()[0])] == []


def test_every_flag_that_is_named_exists():
    known = set().union(*map(flags, VERBS)) | {"--version"} | PLACEHOLDERS | set(OF_OTHERS) | OF_OUR_PROCESSES
    unknown = {(path.name, flag) for path, text in TEXTS for flag in FLAG.findall(text) if flag not in known}
    assert unknown == set()


def test_commands_without_placeholders_can_be_followed(capsys):
    """Those that name a workload of ours are planned; others need a run."""
    followed = set()
    for path, line in commands():
        words = line.split()
        if words[0] == "train" and words[1:2] and words[1] in registry.names() and UNKNOWN not in line:
            followed.add(line)
            assert main(["plan", *shlex.split(line.strip("."))[1:]]) == 0, f"{path}: {capsys.readouterr().err}"
    assert "train snake --preset small" in followed


def test_every_package_that_is_recommended_is_an_extra_of_ours_or_a_known_one():
    # What the messages fill in: the program that `bench` compares with, and a format that `export` writes.
    peers = {peer for name in registry.names() for peer in getattr(registry.load(name), "peers", ())}
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    recommended = [name for _, text in TEXTS for name in re.findall(r"pip install '?([\w-]+(?:\[.*?\])?)", text)]
    assert len(recommended) > 8 and peers | {"sb3", "onnx"} <= extras
    for name in recommended:
        own = re.fullmatch(rf"lockstep-train\[(\w+|{UNKNOWN})\]", name)
        assert (own and (own[1] in extras or own[1] == UNKNOWN)) or name in OTHER_PACKAGES, name
