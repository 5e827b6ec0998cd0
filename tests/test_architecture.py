"""The floors of the house: imports only go down, neighbours do not read each other, one room speaks of ranks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lockstep

ROOT = Path(lockstep.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FLOORS = (
    *(
        "errors",
        "version",
        "output",
        "untrusted",
        "config",
        "launch",
        "failpoints",
        "compute",
        "distributed",
        "storage",
    ),
    *("storage", "reporting", "watch", "reports", "diagnostics", "run", "envs", "rl", "algorithms", "workloads"),
)
"""From the ground up; what is not named here (the command line, the API) is on top."""
MOST_FILES = 22
"""Python files of a room; more than that are several concerns."""
PICKLES = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}
RANK_VARIABLES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
RANKS_BEFORE_TORCH = {("launch", "environment"), ("launch", "rank_setup")}
"""The launcher sets these variables, and reads its own before torch is imported."""


def rooms(path):
    return path.relative_to(ROOT).with_suffix("").parts


def floor(parts):
    return FLOORS.index(parts[0]) if parts[0] in FLOORS else len(FLOORS)


def imports(tree) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(tree) -> set[tuple[str, ...]]:
    """Every module of ours that is read, late and for types alone included; () is the package itself."""
    names = (name.split(".") for name in imports(tree) if name.split(".")[0] == "lockstep")
    found = {tuple(name[1:]) for name in names}
    # `from lockstep import errors` reads errors; `import lockstep` reads the public face, which is above all floors.
    return {name for name in found if name} | ({("api",)} if reads_the_face(tree) else set())


def reads_the_face(tree) -> bool:
    return any(
        isinstance(node, ast.Import) and any(alias.name == "lockstep" for alias in node.names)
        for node in ast.walk(tree)
    )


def module_of(target):
    """The file that an imported name is in."""
    for length in range(len(target), 0, -1):
        path = ROOT.joinpath(*target[:length])
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
    return None


TREES = {path: ast.parse(path.read_text()) for path in FILES}
"""Every file, parsed once: a test for each rule looks at all of them."""


def test_imports_only_go_down():
    for path, tree in TREES.items():
        here = rooms(path)
        for target in own_imports(tree):
            assert floor(target) <= floor(here), f"{path} reads {'.'.join(target)}, which is above it"


def test_neighbours_on_a_floor_do_not_read_each_other():
    for path, tree in TREES.items():
        here = rooms(path)
        if here[0] not in ("algorithms", "workloads") or len(here) < 3:
            continue
        for target in own_imports(tree):
            same_floor = target[0] == here[0] and len(target) > 1 and (ROOT / target[0] / target[1]).is_dir()
            assert not same_floor or target[1] == here[1], f"{path} reads its neighbour {'.'.join(target)}"


def test_only_one_room_speaks_of_ranks():
    for path, tree in TREES.items():
        if rooms(path)[0] == "distributed" or rooms(path) in RANKS_BEFORE_TORCH:
            continue
        assert not any(name.startswith("torch.distributed") for name in imports(tree)), path
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not words & RANK_VARIABLES, path


def test_no_file_holds_two_ideas():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 350, path


def test_nothing_can_run_code_from_a_file():
    for path, tree in TREES.items():
        # One file sends the caller's own objects to the caller's own processes; nothing stored is ever unpickled.
        if rooms(path) != ("launch", "given"):
            assert not {name.split(".")[0] for name in imports(tree)} & PICKLES, path
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "torch.load", "yaml.load", "os.system"), f"{path}:{node.lineno}"
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("shell") != "True" and keywords.get("allow_pickle") != "True", f"{path}:{node.lineno}"


def test_no_file_reads_one_that_reads_it_in_the_end():
    reads = {path: {module_of(target) for target in own_imports(TREES[path])} for path in FILES}
    done: set[Path] = set()

    def walk(path, way):
        assert path not in way, "a circle: " + " -> ".join(step.stem for step in (*way[way.index(path) :], path))
        if path in done or path is None or (path.parent == ROOT and path.stem == "__init__"):
            return
        for other in reads.get(path, ()):
            if other != path:
                walk(other, (*way, path))
        done.add(path)

    for path in FILES:
        walk(path, ())


def test_a_room_has_one_concern_and_not_many_more_than_twenty_files():
    folders = {path.parent for path in FILES}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) - 1 for folder in folders}
    assert {name: size for name, size in sizes.items() if size > MOST_FILES} == {}


def test_questions_of_rank_are_asked_in_few_rooms():
    for path, tree in TREES.items():
        asks = any(isinstance(node, ast.Attribute) and node.attr == "leads" for node in ast.walk(tree))
        assert not asks or rooms(path)[0] in ("distributed", "storage", "reporting"), f"{path} asks who leads"


def test_there_is_no_room_for_leftovers():
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "common", "misc")]


def test_no_folder_reads_one_that_reads_it():
    reads = {}
    for path in FILES:
        here = rooms(path)
        reads.setdefault(here[0], set()).update(target[0] for target in own_imports(TREES[path]))
    folders = [folder for folder in reads if (ROOT / folder).is_dir()]
    mutual = [(a, b) for a in folders for b in folders if a < b and b in reads[a] and a in reads[b]]
    assert mutual == []


def test_names_that_torch_does_not_promise_are_used_in_one_file():
    for path, tree in TREES.items():
        if path.name == "torch_private.py":
            continue
        private = [name for name in imports(tree) if name.startswith("torch") and "._" in name]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                private += (
                    [f"{ast.unparse(node.value)}.{node.attr}"] if ast.unparse(node.value).startswith("torch") else []
                )
        assert not private, f"{path} uses {private}; compute/torch_private.py is the place for it"
