"""Metrics: equal sums on any number of ranks, a log without gaps or duplicates, and loggers that cannot end a run."""

import json
import math
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import torch

from lockstep.distributed.world import World
from lockstep.reporting import loggers, metrics
from lockstep.reporting.log_sinks import LoggedRun, TensorBoard
from lockstep.reporting.loggers import Background
from lockstep.reporting.metrics import MetricsLog, Stat, merge, reduce


def log_of(directory, resume_step=None, loggers=()):
    return MetricsLog(LoggedRun(directory=directory, resume_step=resume_step), loggers)


def lines(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_a_stat_has_the_values_worked_out_by_hand():
    assert Stat.of([1.0, 2.0, 6.0]) == Stat(9.0, 3, 1.0, 6.0)
    assert Stat.of([1.0, 2.0, 6.0]).mean == 3.0
    assert Stat.of(torch.tensor([[True, False], [True, True]])).mean == 0.75
    assert Stat.of(torch.tensor([2**24 + 1, 1], dtype=torch.int64)).sum == 2**24 + 2
    assert Stat.of(torch.ones(3, dtype=torch.bfloat16)) == Stat(3.0, 3, 1.0, 1.0)


def test_nothing_observed_adds_nothing():
    nothing = Stat.of(torch.empty(0))
    assert nothing == Stat.of([]) == Stat()
    assert math.isnan(nothing.mean)
    assert nothing.merge(Stat.of([2.0, 4.0])) == Stat.of([2.0, 4.0]).merge(nothing) == Stat(6.0, 2, 2.0, 4.0)


def test_a_mean_is_weighted_by_counts_not_by_parts():
    assert merge([{"a": Stat.of([1.0])}, {"a": Stat.of([4.0, 4.0, 4.0]), "b": Stat.of([0.0])}, {}])["a"].mean == 3.25


def test_a_nan_stays_visible_whichever_side_it_comes_from():
    bad, good = Stat.of([math.nan]), Stat.of([1.0])
    for both in (bad.merge(good), good.merge(bad)):
        assert all(math.isnan(value) for value in (both.sum, both.minimum, both.maximum, both.mean))


def test_lanes_are_added_in_lane_order_whoever_held_them():
    # Added in another order these four give 1.0 or 0.0 instead of 2.0: the order is visible in the bits.
    lanes = [{"loss": Stat.of(torch.tensor([value], dtype=torch.float64))} for value in (1e16, -1e16, 1.0, 1.0)]
    expected = reduce(lanes, World())
    assert expected["loss"].sum == 2.0
    for split in ([[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0, 1, 2, 3], []], [[0], [1], [2], [3]]):
        sent: list[list] = []

        def collect(value, box=sent):
            box.append(json.loads(json.dumps(value)))
            return box

        for held in split:
            result = reduce([lanes[lane] for lane in held], SimpleNamespace(gather_json=collect))
        assert result == expected


def test_a_log_point_is_a_line_and_what_is_not_finite_is_null(tmp_path):
    log = log_of(tmp_path)
    log.write(5, {"train/loss": 0.1, "a": math.nan, "b": -math.inf, "rollout/episodes": 3})
    log.close()
    (line,) = lines(tmp_path)
    assert abs(line.pop("time") - time.time()) < 60
    assert line == {"step": 5, "train/loss": 0.1, "a": None, "b": None, "rollout/episodes": 3}


def test_a_resumed_log_has_no_double_and_no_missing_step(tmp_path):
    first = log_of(tmp_path)
    for step in (1, 2, 3, 4):
        first.write(step, {"a": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "torn')
    second = log_of(tmp_path, 2)
    for step in (3, 4, 5):
        second.write(step, {"a": 10.0 * step})
    assert [(line["step"], line["a"]) for line in lines(tmp_path)] == [(1, 1), (2, 2), (3, 30), (4, 40), (5, 50)]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_new_run_starts_a_new_log(tmp_path):
    log_of(tmp_path).write(0, {"a": 1.0})
    log_of(tmp_path).write(0, {"a": 2.0})
    assert [line["a"] for line in lines(tmp_path)] == [2.0]


def test_lines_that_are_not_log_points_are_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n[]\n{"step": "x"}\n\xff\xfe\n{"no": 1}\n{"step": 2}\n{"step": 1}')
    metrics.cut(path, 2)
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_log_points_that_a_full_disk_refused_are_written_once_there_is_room(tmp_path, monkeypatch, caplog):
    log = log_of(tmp_path)
    log.write(1, {"a": 1.0})
    real = metrics.open_to_append

    def takes_half(path):
        file = real(path)

        class Half:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def fileno(self):
                return file.fileno()

            def truncate(self, size):
                file.truncate(size)

            def write(self, data):
                return file.write(data[: len(data) // 2])

        return Half()

    monkeypatch.setattr(metrics, "open_to_append", takes_half)
    log.write(2, {"a": 2.0})
    log.write(3, {"a": 3.0})
    monkeypatch.undo()
    log.write(4, {"a": 4.0})
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]
    assert caplog.text.count("training continues") == 1


def test_a_log_that_could_not_be_cut_is_cut_as_soon_as_it_can(tmp_path, monkeypatch, caplog):
    first = log_of(tmp_path)
    for step in (1, 2, 3):
        first.write(step, {"a": 1.0})

    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(metrics, "write_atomically", full)
        second = log_of(tmp_path, 2)
        second.write(3, {"a": 2.0})
    assert [(line["step"], line["a"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert caplog.text.count("No space left on device") == 1
    second.write(4, {"a": 2.0})
    assert [(line["step"], line["a"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


def test_tensorboard_has_the_same_points_and_drops_those_that_a_resume_repeats(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def run(resume_step, steps, factor):
        board = TensorBoard(LoggedRun(directory=tmp_path, resume_step=resume_step))
        for step in steps:
            board.write(step, 1000.0 + step, {"train/loss": factor * step})
        board.close()

    run(None, (1, 2, 3, 4), 1.0)
    time.sleep(1.1)  # event files are ordered by the second in their names
    run(2, (3, 4, 5), 10.0)
    accumulator = EventAccumulator(str(tmp_path / "tensorboard"))
    accumulator.Reload()
    points = [(event.step, event.value) for event in accumulator.Scalars("train/loss")]
    assert points == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]


def test_a_tensorboard_folder_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("in the way")
    log = log_of(tmp_path, loggers=["tensorboard"])
    for step in range(3):
        log.write(step, {"a": 1.0})
    log.close()
    assert len(lines(tmp_path)) == 3
    assert [record.message.split(":")[0] for record in caplog.records] == ["TensorBoard"]


def test_a_hanging_logger_is_left_behind_and_full_queues_drop(monkeypatch, caplog):
    monkeypatch.setattr(loggers, "_QUEUE_LENGTH", 2)
    release = threading.Event()
    logger = Background("W&B", release.wait)
    start = time.monotonic()
    for step in range(100):
        logger.offer(step, 0.0, {})
    logger.close(time.monotonic() + 0.2)
    assert time.monotonic() - start < 2.0
    assert caplog.text.count("W&B: far behind or hanging") == 1
    release.set()
    assert metrics._LONGEST_WAIT_IN_A_HURRY <= 10.0


def test_a_full_queue_is_told_the_end_in_place_of_its_oldest_point(monkeypatch):
    monkeypatch.setattr(loggers, "_QUEUE_LENGTH", 2)
    release = threading.Event()
    logger = Background("W&B", release.wait)
    for step in (1, 2):
        logger.offer(step, 0.0, {})
    logger.finish()
    assert list(logger._queue.queue) == [(2, 0.0, {}), None]
    release.set()


def test_the_end_of_a_logger_that_failed_waits_for_nothing(monkeypatch):
    monkeypatch.setattr(loggers, "_QUEUE_LENGTH", 1)
    logger = Background("W&B", lambda: 1 / 0)
    logger._thread.join()
    logger._queue.put((1, 0.0, {}))
    logger.finish()
    assert list(logger._queue.queue) == [(1, 0.0, {})]


def test_a_logger_that_raises_is_one_warning_wherever_it_raises(caplog):
    def refuses(*_):
        raise SystemExit("no login\nsecond line")

    for broken in (refuses, lambda: SimpleNamespace(write=refuses, close=refuses)):
        caplog.clear()
        logger = Background("W&B", broken)
        for step in range(3):
            logger.offer(step, 0.0, {})
        logger.close(time.monotonic() + 5.0)
        logger.offer(4, 0.0, {})
        assert [record.message for record in caplog.records] == [
            "W&B: SystemExit: no login; training continues without it"
        ]


def test_a_logger_that_hangs_takes_nothing_from_the_others(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(metrics, "_LONGEST_WAIT", 0.3)
    release, log = threading.Event(), log_of(tmp_path, loggers=["csv"])
    log._loggers.insert(0, Background("W&B", release.wait))
    log.write(1, {"a": 1.0})
    log.close()
    release.set()
    assert [record.message.split(":")[0] for record in caplog.records] == ["W&B"]
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 2


def test_a_logger_that_opens_slowly_gets_every_point_at_a_normal_end_and_the_user_is_told(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(loggers, "_UNNOTICED_WAIT", 0.1)
    monkeypatch.setattr(metrics, "_LONGEST_WAIT_IN_A_HURRY", 0.2)
    taken, log = [], log_of(tmp_path)

    def open_slowly():
        time.sleep(0.5)
        return SimpleNamespace(write=lambda step, *_: taken.append(step), close=lambda: None)

    log._loggers.append(Background("W&B", open_slowly))
    for step in range(6):
        log.write(step, {"a": 1.0})
    log.close()
    assert taken == [0, 1, 2, 3, 4, 5]
    assert [record.message for record in caplog.records] == [
        "W&B: is still writing; the run waits for it, at most 60 s"
    ]
    # Whoever stops a run does not wait that long.
    log._loggers[:] = [Background("W&B", open_slowly)]
    log.close(in_a_hurry=True)
    assert "W&B: hanging, left behind" in caplog.text


def test_every_point_handed_over_is_written_before_the_close_returns():
    taken = []
    logger = Background("slow", lambda: SimpleNamespace(write=lambda *point: taken.append(point), close=lambda: None))
    for step in range(50):
        logger.offer(step, 1.0, {"a": 2.0})
    logger.close(time.monotonic() + 5.0)
    assert taken == [(step, 1.0, {"a": 2.0}) for step in range(50)]


def test_a_log_that_is_not_a_regular_file_does_not_block(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), lambda: path.symlink_to("/dev/full")):
        make()
        log = log_of(tmp_path, 5)
        log.write(6, {"a": 1.0})
        log.sync()
        assert log.rows() == []
        path.unlink()
    assert caplog.text.count("training continues") == 3


def test_only_the_end_of_a_long_log_is_read_and_cut(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.seek(10 << 30)  # sparse: it takes no room on the disk
        file.write(b'\n{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 2, "torn')
    log = log_of(tmp_path, 2)
    log.write(9, {"a": 1.0})
    assert path.stat().st_size < (10 << 30) + 200
    assert [row["step"] for row in log.rows()] == [1, 2, 9]


def test_a_long_file_that_is_not_a_log_is_left_unchanged(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.touch()
    os.truncate(path, 10 << 30)
    log = log_of(tmp_path, 2)
    log.write(3, {"a": 1.0})
    assert path.stat().st_size == 10 << 30
    assert caplog.text.count("no log point up to step 2") == 1


def test_waiting_log_points_are_on_disk_before_a_later_checkpoint(tmp_path, monkeypatch):
    log = log_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "open_to_append", _refuse)
        log.write(1, {"a": 1.0})
    assert lines(tmp_path) == []
    log.sync()
    assert [line["step"] for line in lines(tmp_path)] == [1]


def _refuse(path):
    raise OSError(28, "No space left on device", str(path))
