"""`lockstep play`: the games of an evaluation, as text, as a film and moving in a terminal."""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import islice

import pytest
from PIL import Image

from lockstep.cli import play as playing
from lockstep.cli.main import main
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads import registry
from lockstep.workloads.snake.watch import scenes
from lockstep.workloads.snake.workload import Snake

SMALL = Snake().preset("debug").replace(grid_size=6, max_steps=60)


def games(count, act, seed, config=SMALL):
    """The first games, each a list of its scenes."""
    found = []
    for scene in scenes(config.workload, act, seed):
        if not found or found[-1][-1].ended:
            if len(found) == count:
                break
            found.append([])
        found[-1].append(scene)
    return found


def complaint(capsys, *words):
    assert main(["play", *words]) == 2
    return capsys.readouterr().err


def test_game_number_n_is_episode_n_of_an_evaluation_with_that_seed():
    world = World().with_lanes(SMALL.effective_lanes, "fast")
    expected = registry.load("snake").evaluate_baseline("scripted", SMALL, world, 4, 11)
    found = games(4, "scripted", 11)
    assert [game[-1].score for game in found] == pytest.approx(expected.returns)
    assert [len(game) - 1 for game in found] == expected.lengths


def test_a_film_s_seed_is_the_score_that_eval_reports(at_runs, capsys):
    assert main(["play", "demo", "--seed", "3"]) == 0
    played = capsys.readouterr().out
    assert main(["eval", "demo", "--seed", "3", "--episodes", "1"]) == 0
    score = float(re.search(r"mean return (\S+)", played)[1])
    evaluated = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("return"))
    assert score == pytest.approx(float(evaluated.split()[1]))


def test_frames_are_plain_text_where_there_is_no_terminal(at_runs, capsys):
    start = time.monotonic()
    assert main(["play", "demo", "--max-frames", "5", "--episodes", "9", "--fps", "0.5"]) == 0
    assert time.monotonic() - start < 8, "nobody watches, so nobody waits"
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("╭") == 5
    assert "5 frames" in out
    chances = [int(chance) for chance in re.findall(r"(?:left|right|up|down) .*?(\d+)%", out)]
    assert len(chances) == 20
    assert sum(chances[:4]) == pytest.approx(100, abs=2)


def test_a_scene_tells_score_length_and_how_the_game_ended():
    (game,) = games(1, "scripted", 2, SMALL.replace(max_steps=3))
    assert [scene.ended for scene in game] == [False, False, False, True]
    assert "out of time" in game[-1].caption
    eaten = int(game[-1].caption.split()[3]) - 3
    assert game[-1].score == pytest.approx(eaten * 1.0 + (2 - eaten) * -0.01 - 1.0)
    assert game[0].caption.startswith("step 0   length 3   score 0.00")
    first, last = game[0].drawing.paint(), game[-1].drawing.paint()
    assert first.shape == last.shape and first.shape[2] == 3


def test_actions_are_drawn_by_the_seed_when_asked_for(store_run, tmp_path, monkeypatch, capsys):
    store_run(tmp_path / "runs", "unsure", SMALL, scale=1.0)
    monkeypatch.chdir(tmp_path)

    def shown(*words):
        assert main(["play", "unsure", "--episodes", "3", *words]) == 0
        return capsys.readouterr().out

    drawn = shown("--stochastic")
    assert drawn == shown("--stochastic")
    assert drawn != shown()
    assert drawn != shown("--stochastic", "--seed", "7")


def test_a_video_shows_the_game_with_the_median_return(at_runs, tmp_path, capsys):
    assert main(["play", "demo", "--policy", "scripted", "--video", "film.gif", "--seed", "20"]) == 0
    seed, score = re.search(r"film.gif: seed (\d+), 1 episode.*mean return (\S+)", capsys.readouterr().out).groups()
    scores = [game[-1].score for seed in range(20, 29) for game in games(1, "scripted", seed)]
    assert float(score) == pytest.approx(sorted(scores)[4], abs=0.006)
    assert scores[int(seed) - 20] == pytest.approx(sorted(scores)[4])
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == len(games(1, "scripted", int(seed))[0])


def test_a_video_of_so_many_episodes_starts_at_the_seed(at_runs, tmp_path, capsys):
    assert main(["play", "demo", "--episodes", "2", "--video", "film.gif"]) == 0
    assert "seed 2025, 2 episodes" in capsys.readouterr().out


def test_a_video_that_is_cut_says_so(at_runs, capsys):
    assert main(["play", "demo", "--video", "film.gif", "--max-frames", "2"]) == 0
    assert "cut at 2 frames" in capsys.readouterr().out


def test_an_mp4_is_written(at_runs, tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg")
    assert main(["play", "demo", "--video", "film.MP4", "--max-frames", "4"]) == 0
    assert (tmp_path / "film.MP4").stat().st_size > 1000


def test_what_cannot_be_filmed_is_told_before_it_is_played(at_runs, capsys, monkeypatch):
    monkeypatch.setattr(playing, "_Stage", lambda *_: pytest.fail("played already"))
    assert "allowed: .gif, .mp4" in complaint(capsys, "demo", "--video", "film.avi")
    assert "the directory nowhere does not exist" in complaint(capsys, "demo", "--video", "nowhere/film.gif")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert "pip install 'lockstep-train[video]'" in complaint(capsys, "demo", "--video", "film.mp4")
    assert "allowed: trained, scripted, random" in complaint(capsys, "demo", "--policy", "nobody")


def test_a_workload_with_one_task_has_none_to_choose(at_runs, capsys):
    assert "snake: cannot show one task of several; workloads that can: control" in complaint(
        capsys, "snake", "--policy", "scripted", "--only", "dog-run"
    )


def test_the_snake_is_painted_where_it_is():
    (first,) = islice(scenes(SMALL.workload, "random", 0), 1)
    # On 6 x 6 a cell has 60 pixels behind a margin of 8; the snake starts on row 3, columns 2 to 4, its head in front.
    picture = first.drawing.paint()
    colours = [tuple(picture[8 + 60 * 3 + 30, 8 + 60 * column + 30].tolist()) for column in range(6)]
    body, head, ground = colours[2], colours[4], colours[0]
    assert colours[3] == body
    assert len({body, head, ground}) == 3
    assert body[1] > body[0]


def test_what_cannot_be_drawn_is_found_before_games_are_played_to_choose_one(at_runs, capsys, monkeypatch):
    def broken(stage, seed):
        raise UserError("demo: cannot be rendered (pygame is not installed)")
        yield

    monkeypatch.setattr(playing._Stage, "scenes", broken)
    monkeypatch.setattr(Snake, "judge", lambda *_: pytest.fail("a game was played"))
    assert "pygame is not installed" in complaint(capsys, "demo", "--video", "game.gif")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_ctrl_c_in_a_terminal_ends_with_one_line_and_gives_the_cursor_back(at_runs):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "lockstep", "play", "demo", "--fps", "50"]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while b"game   2" not in shown:
        shown += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # Linux reports the other end's closing as an error.
    assert process.wait(timeout=20) == 130
    os.close(ours)
    last = shown.decode().splitlines()[-1]
    assert re.fullmatch(r"\x1b\[\?25h\d+ episodes?, \d+ frames, mean return -?\d+\.\d\d", last)
    assert b"Traceback" not in shown
