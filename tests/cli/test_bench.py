import json
import time
from dataclasses import replace

import psutil
import pytest

from lockstep.cli.bench import command as verb
from lockstep.cli.bench import report
from lockstep.cli.bench.report import Bench, Like, Peer, Row
from lockstep.cli.main import main
from lockstep.distributed.pool import RankError

# One rank: 1 ms a step, 10 MFLOP of it in 0.8 ms.
ONE = Row(1, [900.0, 1000.0, 1100.0], {"environment": 1e-4, "acting": 2e-4, "learning": 6e-4, "other": 1e-4}, 1e7, 20e9)


def two(speed=1600.0, matmul=40e9, **parts):
    """Two ranks with half of each part, and what else is given in milliseconds."""
    halves = {part: seconds / 2 for part, seconds in ONE.parts.items()}
    return Row(2, [speed] * 3, halves | {part: ms * 1e-3 for part, ms in parts.items()}, 1e7, matmul)


def found(row, peers=(), cores=2, others=0.0):
    return Bench("snake", "small", "CPU (x)", cores, 1, others, [ONE, row], list(peers))


def said(*arguments, **options):
    return " ".join(report.sentences(found(*arguments, **options)))


def complaint(capsys, *words):
    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_speed_is_the_median_and_efficiency_the_ratio_by_ranks():
    row = report.as_json(found(two(1600.0)))["ranks"][1]
    assert (row["steps_per_second"], row["ratio_to_one_rank"], row["efficiency"]) == (1600.0, 1.6, 0.8)


def test_shares_add_up_and_arithmetic_is_that_of_acting_and_learning():
    row = two(sync=0.1, idle=0.4)
    # Half of 1 ms, and 0.5 ms of exchanges.
    assert row.share("idle") == pytest.approx(0.4)
    assert sum(row.share(part) for part in report.PARTS) == pytest.approx(1.0)
    assert row.work == pytest.approx(1e-3)
    assert ONE.arithmetic == pytest.approx(1e7 / 0.8e-3)
    assert report.as_json(found(row))["ranks"][0]["share_of_peak"] == pytest.approx(12.5 / 20)


def test_words_name_the_largest_loss():
    assert "2 ranks are 1.60 times as fast as one (efficiency 80%). The largest loss is idle time, 20% of" in said(
        two(idle=0.125)
    )
    assert "The largest loss is sync, 20% of a rank's time: the exchange" in said(two(sync=0.125))
    assert "Almost nothing is lost" in said(two())


def test_words_tell_a_crowded_machine_from_small_batches():
    slower = {"learning": 0.5}
    assert "a step costs 1.00 ms of one rank and 1.40 ms of 2" in said(two(**slower))
    assert "keeps its speed: each rank's smaller share" in said(two(**slower))
    assert "keeps only 75% of its speed when all ranks compute" in said(two(matmul=30e9, **slower))


def test_more_ranks_than_cores_are_called_so():
    assert "2 ranks of 1 thread share 1 core: more ranks cannot help" in said(two(idle=0.2), cores=1)


def test_other_programs_are_mentioned_when_they_disturb():
    assert "Other programs used 1.3 of this machine's 2 cores" in said(two(), others=1.3)
    assert "Other programs" not in said(two(), others=0.05)


def test_another_program_is_compared_at_its_fastest_on_as_many_cores():
    slow, fast = Peer("sb3", 1, [500.0, 500.0, 400.0]), Peer("sb3", 2, [250.0, 200.0, 250.0])
    words = said(two(1500.0), [slow, fast])
    # 900 / 500, 1000 / 500, 1100 / 400.
    assert "on 1 rank is 2.00 times as fast as sb3 with 1 thread (1.80 to 2.75 in 3 rounds): 1,000 and 500" in words
    assert "on 2 ranks is 3.00 times as fast as sb3 with 1 thread (3.00 to 3.75 in 3 rounds)" in words
    quick = Peer("sb3", 2, [600.0] * 3)
    assert "on 1 rank is 2.00 times as fast as sb3 with 1 thread" in said(two(1500.0), [slow, quick])
    assert "on 2 ranks is 2.50 times as fast as sb3 with 2 threads" in said(two(1500.0), [slow, quick])


def test_the_other_programs_own_network_is_compared_apart():
    bench = replace(found(two(1600.0), [Peer("sb3", 1, [200.0] * 3)]), likes=[Like(2, {"lstms": "two"}, [800.0] * 3)])
    told = " ".join(report.sentences(bench))
    assert "on 2 ranks is 8.00 times as fast as sb3" in told
    assert "on 2 ranks with sb3's network (lstms two) is 4.00 times as fast as sb3 with 1 thread" in told
    (like,) = report.as_json(bench)["with_the_peers_network"]
    assert (like["ranks"], like["fields"], like["against_sb3"]["ratio"]) == (2, {"lstms": "two"}, 4.0)


def test_tables_fit_a_terminal_of_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    bench = found(two(123_456.0, idle=0.2), [Peer("sb3", 1, [1.0] * 3), Peer("sb3", 16, [1.0] * 3)])
    report.show(replace(bench, likes=[Like(16, {"lstms": "two"}, [1.0] * 3)]), ["lockstep", "train", "snake"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert any("2 ranks" in line and "123,456" in line for line in lines)


def test_gradient_updates_are_told_where_they_are_counted():
    # One gradient update every 128 steps, at 1,000 and at 1,600 steps a second.
    rows = [replace(row, gradient_updates=1 / 128) for row in (ONE, two(1600.0))]
    counted = replace(found(two()), rows=rows)
    assert [row["gradient_updates_per_second"] for row in report.as_json(counted)["ranks"]] == [7.8125, 12.5]
    assert "Gradient updates a second: 7.8 on 1 rank, 12.5 on 2 ranks." in report.sentences(counted)
    assert "gradient_updates_per_second" not in report.as_json(found(two()))["ranks"][0]
    assert "Gradient updates" not in said(two())


@pytest.mark.slow
def test_a_whole_benchmark_of_both_programs(capsys):
    pytest.importorskip("stable_baselines3")
    words = ["--preset", "debug", "--rounds", "2", "--updates", "1", "--against", "sb3", "--json"]
    assert main(["bench", "snake", *words]) == 0
    (snake,) = json.loads(capsys.readouterr().out)["workloads"]
    assert (snake["workload"], snake["preset"], snake["threads_per_rank"]) == ("snake", "debug", 1)
    one, pair = snake["ranks"]
    assert [row["ranks"] for row in (one, pair)] == [1, 2]
    assert one["ratio_to_one_rank"] == 1.0
    for row in (one, pair):
        assert len(row["steps_per_second_by_round"]) == 2
        assert sum(row["split"].values()) == pytest.approx(1.0)
        assert row["split"]["other"] < 0.3
        assert row["split"]["environment"] > 0 < row["split"]["acting"]
    assert one["split"]["idle"] == one["split"]["sync"] == 0.0
    assert pair["split"]["idle"] > 0 < pair["split"]["sync"]
    # A board of 6 x 6: convolution 36 x 27 x 16, features 144 x 256, heads 256 x 5 multiply-adds; the convolution's
    # input needs no gradient. Acting once, and once more for the value after the last of 16 steps; 2 epochs.
    convolution, linear = 2 * 15_552, 2 * (36_864 + 1_280)
    acting, learning = (convolution + linear) * 17 / 16, 2 * (2 * convolution + 3 * linear)
    assert one["gflop_per_step"] * 1e9 == pytest.approx(acting + learning)
    assert {peer["threads"] for peer in snake["peers"]} == {1, 2}
    assert pair["against_sb3"]["ratio"] > 0 and snake["with_the_peers_network"] == []
    assert any("2 ranks are" in sentence for sentence in snake["in_words"])


def test_without_a_workload_all_of_them_are_measured(monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(verb.registry, "names", lambda: ["snake"])
    monkeypatch.setattr(verb, "_measure", lambda plan, options: measured.append(plan) or found(two()))
    assert main(["bench", "--ranks", "4", "--against", "nobody", "--json"]) == 0
    assert [(plan.workload.name, plan.preset, plan.sizes, plan.against) for plan in measured] == [
        ("snake", "small", [1, 4], "")
    ]
    assert len(json.loads(capsys.readouterr().out)["workloads"]) == 1


def test_a_comparison_takes_the_preset_that_is_named_like_the_other_program(monkeypatch):
    plans = []
    monkeypatch.setattr(verb, "_measure", lambda plan, options: plans.append(plan) or found(two()))
    for words in ([], ["--against", "sb3"], ["--against", "sb3", "--preset", "debug"]):
        assert main(["bench", "trading", "--json", *words]) == 0
    assert [plan.preset for plan in plans] == ["small", "sb3", "debug"]
    assert plans[1].config.algorithm.sequence_length == plans[1].config.algorithm.n_steps == 128


def test_wrong_words_are_told_in_one_line_before_a_process_starts(capsys, monkeypatch):
    monkeypatch.setattr(verb, "_measure", lambda plan, options: pytest.fail("was started"))
    assert "the nearest is sb3; allowed: sb3" in complaint(capsys, "snake", "--against", "sb4")
    assert "ranks 9 is more than the run's 8 lanes" in complaint(capsys, "snake", "--ranks", "1,9")
    assert "at least 1 rank is needed" in complaint(capsys, "snake", "--ranks", "0")
    assert "numbers of ranks, such as 1,2,4" in complaint(capsys, "snake", "--ranks", "two")
    assert "the nearest is snake" in complaint(capsys, "snak")
    assert "the nearest name is grid_size" in complaint(capsys, "snake", "--grid-siz", "8")


def test_a_prediction_is_refused_in_one_line_where_it_makes_no_sense(capsys, monkeypatch):
    monkeypatch.setattr(verb, "_measure", lambda plan, options: pytest.fail("was started"))
    snake = ("snake", "--ranks", "1,4")
    assert "--predict 4: 4 ranks are measured; predict more than that" in complaint(capsys, *snake, "--predict", "4")
    assert "--predict 2: 4 ranks are measured" in complaint(capsys, *snake, "--predict", "2")
    assert "--bandwidth 400: only used by a prediction; add --predict" in complaint(
        capsys, *snake, "--bandwidth", "400"
    )
    assert "--latency 9: only used by a prediction" in complaint(capsys, *snake, "--latency", "9")
    alone = ("snake", "--ranks", "1", "--predict", "8")
    assert "one rank cannot measure an exchange; measure two" in complaint(capsys, *alone)
    assert "give --bandwidth and --latency" in complaint(capsys, *alone, "--bandwidth", "400")
    assert "bandwidth -1 (flag --bandwidth): out of range" in complaint(capsys, *alone, "--bandwidth", "-1")


@pytest.mark.slow
def test_a_whole_prediction_says_of_every_row_what_it_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["--preset", "debug", "--rounds", "1", "--updates", "1", "--predict", "16", "--latency", "50"]
    assert main(["bench", "snake", "--ranks", "1,2", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if "PREDICTED, not measured: snake" in line)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines[start:] if line.startswith("│")]
    kinds = [(row[0], row[1]) for row in rows]
    assert kinds == [
        ("1", "measured"),
        ("2", "measured"),
        ("2", "check"),
        ("4", "predicted"),
        ("8", "predicted"),
        ("16", "cannot"),
    ]
    assert rows[2][-1].startswith("error ") and rows[-1][-1] == "lanes: --lanes 16"
    assert max(map(len, lines)) <= 80
    told = " ".join(" ".join(lines[start:]).split())
    assert "latency given, bandwidth measured between 2 ranks here, gloo" in told
    # Eight minibatches with a gradient of 38,853 numbers each (convolution 448, features 37,120, heads 1,285), and two
    # sums of a few numbers.
    assert "An update (256 steps) makes 10 sum(s) over ranks, 1.24 MB in all; 1 decision(s)." in told
    assert "8 lanes; use at most 8 ranks, or start the run with --lanes 16" in told


def test_a_missing_package_is_named_with_its_extra(capsys, monkeypatch):
    def refuse(pool, ranks, function, *arguments):
        assert function == "time_peer"
        raise RankError(0, "ModuleNotFoundError", "No module named 'stable_baselines3'", "")

    monkeypatch.setattr(verb, "_on_ranks", refuse)
    assert main(["bench", "snake", "--ranks", "1", "--against", "sb3"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "lockstep: --against sb3: No module named 'stable_baselines3'; pip install 'lockstep-train[sb3]'"


def process_id(world):
    return psutil.Process().pid


def test_ranks_that_wait_for_work_leave_the_processor_to_others(ranks):
    idle = [psutil.Process(pid) for pid in ranks.run(process_id)]
    before = [sum(process.cpu_times()[:2]) for process in idle]
    time.sleep(1.0)
    after = [sum(process.cpu_times()[:2]) for process in idle]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 0.1


def test_help_shows_the_flags_of_the_verb_and_of_the_workload(capsys):
    assert main(["bench", "snake", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--against" in text
    assert "--grid-size" in text
