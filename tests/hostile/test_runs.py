"""Run directories made to harm, for every verb that reads one: an answer or one line, in little memory and time.

Nothing outside the run is written, removed or waited for. Some are made by hand, more by mutating a good one.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.main import main
from lockstep.storage import manifest

MUTATIONS = 200
SAMPLE = 24
SIZES = "--n-envs 8 --n-steps 8 --batch-size 64 --total-timesteps 128 --checkpoint-every 64 --eval-every 64"
VERBS = {
    "resume": ["resume", "RUN", "--max-updates", "2", "--ranks", "1", "--device", "cpu"],
    "eval": ["eval", "RUN", "--episodes", "2", "--device", "cpu"],
    "play": ["play", "RUN", "--episodes", "1", "--max-frames", "3", "--fps", "50", "--device", "cpu"],
    "export": ["export", "RUN", "--device", "cpu"],
    "verify": ["verify", "RUN"],
    "runs": ["runs", "--runs-dir", "RUNS"],
    "report": ["report", "RUN", "--no-film", "--out", "PAGE"],
    "compare": ["compare", "RUN", "RUN", "--json"],
    "watch": ["watch", "--runs-dir", "RUNS"],
}
CHECKPOINT = "checkpoints/step-000000000128"
GIGABYTES = 10 << 30  # sparse: it takes no room on the disk


class Arena:
    """A warm process that runs commands in children of its own."""

    def __init__(self):
        program = [sys.executable, str(Path(__file__).with_name("arena.py"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(program, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)

    def run(self, words):
        """Run one command; returns its exit code, seconds and what it said."""
        self.process.stdin.write(json.dumps({"words": words}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def arena():
    arena = Arena()
    yield arena
    arena.process.stdin.close()
    arena.process.wait(30)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small run with two checkpoints, best/ and final/."""
    folder = tmp_path_factory.mktemp("good")
    place = f"--runs-dir {folder} --run-name run --ranks 1 --device cpu --eval-episodes 2 --grid-size 5"
    assert main(f"train snake --preset debug {SIZES} {place}".split()) == 0
    return folder / "run"


@pytest.fixture
def attack(arena, good, tmp_path):
    """Harm a copy of the run, let verbs read it, and list what went wrong."""

    def attempt(harm, verbs, name):
        problems = []
        for verb in verbs:
            place = tmp_path / f"{name}-{verb}".replace("/", "_").replace(" ", "_")
            run, outside = place / "runs" / "run", place / "outside"
            shutil.copytree(good, run, symlinks=True)
            shutil.copytree(good / "checkpoints", outside / "checkpoints")
            (outside / "checkpoints" / ".tmp-step-000000000001-dead").mkdir()
            (outside / "secret.txt").write_text("not to be touched\n")
            harm(run, outside)
            before = _picture(outside)
            answer = arena.run(_words(verb, run))
            problems += [f"{name}, {verb}: {problem}" for problem in _complaints(answer, verb)]
            if _picture(outside) != before:
                problems.append(f"{name}, {verb}: something outside the run has changed")
            shutil.rmtree(place)
        return problems

    return attempt


def _words(verb, run):
    places = {"RUN": run, "RUNS": run.parent, "PAGE": run.parent / "page.html"}
    return [str(places.get(word, word)) for word in VERBS[verb]]


def _complaints(answer, verb):
    told = answer["err"][-600:]
    if answer["code"] == -9:
        yield f"took longer than it may: {told}"
    elif answer["code"] not in (0, 2, 4):
        yield f"exit code {answer['code']}: {told}"
    if "Traceback" in answer["err"] or "half as large" in answer["err"]:
        yield told
    if answer["code"] and not any(line.startswith("lockstep: ") for line in answer["err"].splitlines()):
        yield f"ended with {answer['code']} and no reason: {told}"
    if verb in ("runs", "watch") and (answer["code"] or "run" not in answer["out"]):
        yield f"the list of runs is gone: {told}"
    if verb == "compare" and ("Infinity" in answer["out"] or "NaN" in answer["out"]):
        yield "printed what is no JSON"


def _picture(folder):
    """Everything below a folder: names, kinds, sizes, contents of small files."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest() if _can_be_sealed(path) and path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def link_file(name, target="secret.txt"):
    """Put a link in the place of a file, to one outside or to any path."""

    def harm(run, outside):
        (run / name).unlink()
        (run / name).symlink_to(outside / target)

    return harm


def link_folder(name):
    """Put a link in the place of a folder, to a copy of it outside."""

    def harm(run, outside):
        shutil.copytree(run / name, outside / "moved", dirs_exist_ok=True)
        shutil.rmtree(run / name)
        (run / name).symlink_to(outside / "moved")

    return harm


def pipe(name):
    def harm(run, _):
        (run / name).unlink()
        os.mkfifo(run / name)

    return harm


def sparse(name):
    return lambda run, _: os.truncate(run / name, GIGABYTES)


def content(name, data):
    return lambda run, _: (run / name).write_bytes(data)


def reseal(folder):
    """Hash all files of a stored directory anew, as a forger would."""
    told = json.loads((folder / "manifest.json").read_text())
    told.pop("sha256")
    for name in told["files"]:
        data = (folder / name).read_bytes()
        told["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (folder / "manifest.json").write_bytes(manifest._seal(told))


def sealed(folder, name, data_of):
    """Other content in a stored directory, sealed anew."""

    def harm(run, _):
        (run / folder / name).write_bytes(data_of(run / folder))
        reseal(run / folder)

    return harm


def state(**changes):
    def changed(folder):
        return json.dumps(json.loads((folder / "state.json").read_text()) | changes).encode()

    return sealed(CHECKPOINT, "state.json", changed)


def claim(**changes):
    """Say other things in a manifest, sealed anew."""

    def harm(run, _):
        told = json.loads((run / CHECKPOINT / "manifest.json").read_text())
        told.pop("sha256")
        told.update(changes)
        (run / CHECKPOINT / "manifest.json").write_bytes(manifest._seal(told))

    return harm


def large(name):
    """A file of 10 GB that its manifest knows of."""

    def harm(run, _):
        os.truncate(run / CHECKPOINT / name, GIGABYTES)
        told = json.loads((run / CHECKPOINT / "manifest.json").read_text())
        told.pop("sha256")
        told["files"][name]["size"] = GIGABYTES
        (run / CHECKPOINT / "manifest.json").write_bytes(manifest._seal(told))
        shutil.rmtree(run / "final")
        shutil.rmtree(run / "best")

    return harm


def both(*harms):
    return lambda run, outside: [harm(run, outside) for harm in harms]


def without_weights(run, _):
    shutil.rmtree(run / "final")
    shutil.rmtree(run / "best")


DEEP = b"[" * 200_000
STATUS = {"workload": "snake", "state": "running", "step": 1, "best_score": 1.0, "updated": 1.0}
LARGE_VALUES = b"".join(
    b'{"step": %d, "time": %s1e308, "loss": 1e308, "time/fps_rank0": 1e308, "time/global_fps": 1%s}\n'
    % (step, b"-" if step == 1 else b"", b"0" * 400)
    for step in range(1, 100)
)
LARGE_RETURNS = {"return_mean": 1.0, "episode_returns": [1e200, -1e200, 1]}
LANE, MODEL, OPTIMIZER = "lanes/lane-00.safetensors", "model.safetensors", "optimizer.safetensors"
BY_HAND = {
    "checkpoints linked": link_folder("checkpoints"),
    "checkpoints linked, no weights": both(without_weights, link_folder("checkpoints")),
    "a checkpoint linked": link_folder(CHECKPOINT),
    "lanes linked": link_folder(f"{CHECKPOINT}/lanes"),
    "best linked": link_folder("best"),
    "final linked": link_folder("final"),
    "tensorboard linked": link_folder("tensorboard"),
    "export linked": lambda run, outside: (run / "export").symlink_to(outside),
    "log linked": link_file("metrics.jsonl"),
    "log without end": lambda run, _: link_file("metrics.jsonl", "/dev/zero")(run, Path("/")),
    "log a pipe": pipe("metrics.jsonl"),
    "log of 10 GB": sparse("metrics.jsonl"),
    "log deep": content("metrics.jsonl", DEEP + b"\n"),
    "log of one line": content("metrics.jsonl", b"1" * (8 << 20)),
    "log with large numbers": content("metrics.jsonl", b'{"step": 1' + b"0" * 400 + b"}\n"),
    "log with values beyond sums": content("metrics.jsonl", LARGE_VALUES),
    "evaluation beyond squares": content("evaluation.json", json.dumps(LARGE_RETURNS).encode()),
    "configuration linked": link_file("config.yaml"),
    "configuration a pipe": pipe("config.yaml"),
    "configuration of 10 GB": sparse("final/config.yaml"),
    "configuration deep": content("final/config.yaml", b"a: " + DEEP),
    "configuration sealed, deep": sealed("final", "config.yaml", lambda _: b"a: " + b"[" * 10_000),
    "configuration sealed, unknown": sealed("final", "config.yaml", lambda _: b"no_such_setting: 1\n"),
    "status linked": link_file("status.json"),
    "status a pipe": pipe("status.json"),
    "status without end": lambda run, _: link_file("status.json", "/dev/zero")(run, Path("/")),
    "status deep": content("status.json", DEEP),
    "status of the year 1e300": content("status.json", json.dumps(STATUS | {"updated": 1e300}).encode()),
    "status no number": content("status.json", json.dumps(STATUS | {"best_score": float("nan")}).encode()),
    "status 400 digits": content("status.json", json.dumps(STATUS | {"step": 10**400}).encode()),
    "status with a score of 400 digits": content("status.json", json.dumps(STATUS | {"best_score": 10**400}).encode()),
    "status of 10 GB": sparse("status.json"),
    "lock a pipe": pipe("lock.json"),
    "lock linked": link_file("lock.json"),
    "lock of nobody": content("lock.json", b'{"pid": 1e300, "host": "h", "since": 1e300}'),
    "manifest deep": content(f"{CHECKPOINT}/manifest.json", DEEP),
    "manifest of 10 GB": sparse(f"{CHECKPOINT}/manifest.json"),
    "manifest a pipe": pipe(f"{CHECKPOINT}/manifest.json"),
    "manifest, 400 digits": claim(step=10**400),
    "manifest, a million lanes": claim(lanes=1_000_000),
    "manifest, other files": claim(files={"../../../outside/secret.txt": {"sha256": "0" * 64, "size": 1}}),
    "manifest of another workload": claim(workload="trading"),
    "model of 10 GB": sparse(f"{CHECKPOINT}/{MODEL}"),
    "model of 10 GB, sealed": large(MODEL),
    "optimiser of 10 GB, sealed": large(OPTIMIZER),
    "lane of 10 GB, sealed": large(LANE),
    "state of 10 GB, sealed": large("state.json"),
    "final of 10 GB": sparse(f"final/{MODEL}"),
    "model a pipe": pipe(f"final/{MODEL}"),
    "model linked": link_file(f"final/{MODEL}"),
    "optimiser is the model": sealed(CHECKPOINT, OPTIMIZER, lambda folder: (folder / MODEL).read_bytes()),
    "lane is the model": sealed(CHECKPOINT, LANE, lambda folder: (folder / MODEL).read_bytes()),
    "lane is the optimiser": sealed(CHECKPOINT, LANE, lambda folder: (folder / OPTIMIZER).read_bytes()),
    "model is a lane": sealed(CHECKPOINT, MODEL, lambda folder: (folder / LANE).read_bytes()),
    "final is an optimiser": sealed(
        "final", MODEL, lambda folder: (folder.parent / CHECKPOINT / OPTIMIZER).read_bytes()
    ),
    "state without keys": sealed(CHECKPOINT, "state.json", lambda _: b"{}"),
    "state deep": sealed(CHECKPOINT, "state.json", lambda _: DEEP),
    "state, 400 digits": state(updates=10**400),
    "state, negative": state(updates=-1),
    "state, other types": state(precision=[1]),
    "state, no loop": state(loop=None),
    "ten thousand entries": lambda run, _: [(run / CHECKPOINT / f"f{i}").touch() for i in range(10_000)],
    "evaluation linked": lambda run, outside: (
        (run / "evaluation.json").unlink(missing_ok=True),
        (run / "evaluation.json").symlink_to(outside / "secret.txt"),
    ),
    "W&B's name a pipe": lambda run, _: os.mkfifo(run / "wandb_id"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_limits_leave_room_for_a_good_run(arena, good, tmp_path, verb):
    shutil.copytree(good, tmp_path / "run")
    answer = arena.run(_words(verb, tmp_path / "run"))
    assert (answer["code"], answer["err"].count("Traceback")) == (0, 0), answer


def test_the_limits_are_felt(arena):
    # What wants more memory than there is must be seen to fail, or the others prove nothing.
    assert "MemoryError" in arena.run(["hunger"])["err"]


@pytest.mark.parametrize("name", BY_HAND)
def test_a_run_made_to_harm_does_none(attack, name):
    # The verbs take turns; `make test-slow` tries all of them.
    verbs = list(VERBS)
    assert attack(BY_HAND[name], [verbs[list(BY_HAND).index(name) % len(verbs)]], name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_HAND)
def test_a_run_made_to_harm_does_none_to_any_verb(attack, name):
    assert attack(BY_HAND[name], VERBS, name) == []


def test_some_mutated_runs_do_no_harm(attack):
    verbs = random.Random(7).choices(list(VERBS), k=SAMPLE)
    assert [problem for seed in range(SAMPLE) for problem in attack(mutation(seed), [verbs[seed]], f"{seed}")] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_no_mutated_run_does_harm(attack, verb):
    assert [problem for seed in range(MUTATIONS) for problem in attack(mutation(seed), [verb], f"{seed}")] == []


def mutation(seed):
    """The harm of this number."""
    return lambda run, outside: mutate(run, outside, seed)


def mutate(run, outside, seed):
    """Change one to three things in a good run, by the number alone."""
    numbers = random.Random(seed)
    for _ in range(numbers.randint(1, 3)):
        files = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
        path = numbers.choice([file for file in files if file.stat().st_size < 1 << 30])
        numbers.choice(CHANGES)(path, files, outside, numbers)
    folder = numbers.choice([run / CHECKPOINT, run / "final", run / "best", run / "checkpoints" / "step-000000000064"])
    if numbers.random() < 0.5 and all(_can_be_sealed(path) for path in folder.rglob("*")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            reseal(folder)  # There may be no manifest any more that could be sealed.


def _can_be_sealed(path):
    return path.is_dir() or (path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30)


def flip(path, _, __, numbers):
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(numbers.randint(1, 8)):
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    path.write_bytes(data)


def cut(path, _, __, numbers):
    os.truncate(path, numbers.randrange(path.stat().st_size + 1))


def swap(path, files, _, numbers):
    other = numbers.choice([file for file in files if file.stat().st_size < 1 << 30])
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def to_link(path, _, outside, numbers):
    path.unlink()
    path.symlink_to(numbers.choice([outside / "secret.txt", Path("/dev/zero"), path, Path("/nowhere")]))


def to_linked_folder(path, _, outside, numbers):
    folder = path.parent
    if folder.name == "run":
        return
    moved = outside / f"moved-{numbers.randrange(10**9)}"
    folder.rename(moved)
    folder.symlink_to(moved)


def to_pipe(path, *_):
    path.unlink()
    os.mkfifo(path)


def to_gigabytes(path, *_):
    os.truncate(path, GIGABYTES)


def to_deep(path, _, __, numbers):
    path.write_bytes(numbers.choice([b"[", b'{"a":', b"- "]) * 100_000)


def large_number(path, _, __, numbers):
    data = path.read_bytes()
    places = [i for i, byte in enumerate(data[:100_000]) if 48 <= byte <= 57] or [0]
    place = numbers.choice(places)
    path.write_bytes(data[:place] + numbers.choice([b"9" * 400, b"1e300", b"NaN", b"-1", b"null"]) + data[place + 1 :])


def noise(path, _, __, numbers):
    path.write_bytes(numbers.randbytes(numbers.choice([0, 1, 100, 100_000])))


def gone(path, *_):
    path.unlink()


CHANGES = [flip, flip, cut, swap, to_link, to_linked_folder, to_pipe, to_gigabytes, to_deep, large_number, noise, gone]
