"""The guides' commands: each has a row in docs/seeds.md, what stands there works, and what it says is answered."""

import re
import shlex
from pathlib import Path

import pytest

from lockstep.cli import train
from lockstep.cli.argv import take
from lockstep.cli.evaluate import EvaluateOptions
from lockstep.cli.main import VERBS, main
from lockstep.cli.play import PlayOptions
from lockstep.config.sources import to_yaml
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "seeds.md").read_text()
# The guides lie in a folder beside the repository.
SEEDS = next((folder for folder in (parent / "shared" / "seeds" for parent in ROOT.parents) if folder.is_dir()), None)
GUIDES = {"snake": "000", "snakes3v3": "001", "trading": "002", "control": "003", "cricket": "004"}
# The programs that the guides start. Everything else in them (pip, nvidia-smi, export) is not ours to try.
PROGRAM = r"\S*?\b(train\w*|main\w*|run_ddp_8gpu|eval|play)\.(?:py|sh)"
PLACEHOLDER = re.compile(r"\b(FILE|FOLDER|N)\b")
NO_SIZES = {"seed", "sync_freq", "policy_depth"}
SMALL_YAML = "environment: {grid_size: 8}\nppo: {n_steps: 128, batch_size: 256}\ntraining: {total_timesteps: 200000}\n"


def commands(workload):
    """Every line of a guide's shell blocks, without comments, in the order of the guide."""
    if SEEDS is None:
        pytest.skip("the guides are not beside this repository")
    (guide,) = SEEDS.glob(f"{GUIDES[workload]}_*.txt")
    blocks = re.findall(r"```bash\n(.*?)```", guide.read_text(), re.DOTALL)
    lines = (re.sub(r"(^|\s)#.*", "", line) for block in blocks for line in block.replace("\\\n", " ").splitlines())
    return list(dict.fromkeys(filter(None, (" ".join(line.split()) for line in lines))))


def rows(workload):
    """The page's rows for a guide: (code on the left, code on the right) each."""
    section = PAGE.split("\n## ")[1 + list(GUIDES).index(workload)]
    cells = (re.split(r"(?<!\\)\|", line)[1:3] for line in section.splitlines() if line.startswith("| "))
    return [[re.findall("`([^`]+)`", cell.replace("\\|", "|")) for cell in pair] for pair in cells]


def ours(workload, verb):
    """The words of the page's commands with a verb, without variables in front of them."""
    spans = [shlex.split(span) for _, right in rows(workload) for span in right if " ... " not in f"{span} "]
    lines = [words[words.index("lockstep") + 1 :] for words in spans if "lockstep" in words and words[0] != "torchrun"]
    return [words[1:] for words in lines if words[:1] == [verb] and not PLACEHOLDER.search(" ".join(words))]


def split_at_program(line):
    """What stands before the program that a command starts, the program's name, and its flags."""
    found = re.search(PROGRAM, line)
    if found is None:
        return line, "", []
    return line[: found.start()], found[1], [word for word in line[found.end() :].split() if word != "..."]


def on_two_ranks(words):
    """The words for a machine without GPUs: two ranks instead of some GPUs."""
    line = re.sub(r"--gpus \d+", "--ranks 2", " ".join(words)).replace("--device cuda", "--device cpu")
    return line.split()


@pytest.mark.parametrize("workload", GUIDES)
def test_every_command_of_a_guide_has_a_row(workload):
    known = {span for left, _ in rows(workload) for span in left}
    assert [command for command in commands(workload) if command not in known] == []


@pytest.mark.parametrize("workload", GUIDES)
def test_what_the_page_says_can_be_trained(workload, capsys):
    lines = [on_two_ranks(words) for words in ours(workload, "train")]
    assert len(lines) > 5
    for words in lines:
        assert main(["plan", *words]) == 0, f"{words}: {capsys.readouterr().err}"


@pytest.mark.parametrize("workload", GUIDES)
def test_what_the_page_says_continues_shows_and_measures_runs(workload, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "first")
    run.path.mkdir()
    run.write_config(to_yaml(registry.load(workload).preset("guide")), workload)
    started = []
    monkeypatch.setattr(train, "start", lambda workload, wanted, *_, **__: started.append(wanted.config))
    for _, *words in (lines := ours(workload, "resume")):
        main(["resume", str(run.path), *on_two_ranks(words)])
    assert len(started) == len(lines)
    for verb, options in (("eval", EvaluateOptions()), ("play", PlayOptions())):
        # What is left belongs to a workload or a file of weights: `eval dog-1.pt --workload control task=dog-run`.
        left = [word for _, *words in ours(workload, verb) for word in take(words, options)[1]]
        assert [word for word in left if word.startswith("--")] == []
    mentioned = {words.split()[1] for _, right in rows(workload) for words in right if words.startswith("lockstep ")}
    assert mentioned <= set(VERBS)


@pytest.mark.parametrize("workload", GUIDES)
def test_a_guides_own_command_works_or_is_answered_in_one_line(workload, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("train/configs").mkdir(parents=True)
    for name in ("small", "base", "large"):
        Path(f"train/configs/{name}.yaml").write_text(SMALL_YAML)
    tried = 0
    for line in commands(workload):
        # torchrun stays in front, with its own flags: only the program is another one here.
        launcher, program, flags = split_at_program(line)
        if not program or launcher.startswith("chmod"):
            continue
        verb = [program] if program in ("eval", "play") else ["plan", workload, "--preset", "guide"]
        code = main([*verb, *on_two_ranks(flags)])
        told = capsys.readouterr().err
        tried += 1
        assert code in (0, 2), line
        assert told.count("\n") == (code == 2) and "unknown setting" not in told, f"{line}: {told}"
    assert tried > 5


def test_the_smoke_test_of_the_first_guide_trains_and_is_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = "--device cpu --total-timesteps 1024 --n-envs 8 --run-name smoke_single_gpu"
    assert main(["train", "snake", "--preset", "debug", *flags.split()]) == 0
    assert main(["eval", "smoke_single_gpu", "--n-episodes", "10"]) == 0
    assert "10 episodes" in capsys.readouterr().out


def in_debug_sizes(words):
    """A command's configuration on two ranks: sizes are at most those of preset debug, the rest is as given."""
    workload = registry.load(words[0])
    options, overrides = take(words[1:], train.TrainOptions())
    asked = workload.resolve(options.preset or "base", overrides=overrides)
    debug, values = workload.preset("debug"), asked.config.values()
    given = {name: values[name] for name in asked.explicit}
    sizes = [name for name, value in given.items() if type(value) is int and name not in NO_SIZES]
    given |= {name: min(given[name], debug.values()[name] or 0) for name in sizes}
    if "opponent_evasion_start_episode" in given:
        given["opponent_evasion_start_episode"] = 0  # debug has fewer games than its own default
    return debug.replace(**given | {"device": "cpu", "autotune": False}).for_world(2)


@pytest.mark.slow
@pytest.mark.parametrize("workload", GUIDES)
def test_what_the_page_says_trains_on_two_ranks_in_debug_sizes(ranks, workload):
    texts = {to_yaml(in_debug_sizes(on_two_ranks(words))) for words in ours(workload, "train")}
    for text in texts:
        done = ranks.run("lockstep.cli.short_runs:time_anew", workload, text, 1, 0.0, ranks=2)
        assert done[0]["steps"] > 0, text
