"""Loggers: one place for a run however often it is resumed, and never the end of it."""

import csv
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from lockstep.cli.main import main
from lockstep.config.run_settings import RunSettings
from lockstep.reporting.log_sinks import CsvFile, LoggedRun, MLflow, TensorBoard, Trackio, WeightsAndBiases
from lockstep.reporting.loggers import open_loggers

SETTINGS = {"seed": 3, "learning_rate": 1e-3, "target_kl": None, "network": "cnn", "wandb": True}


def logged(directory, resume_step=None, **changes):
    common = {"project": "mine", "entity": "us", "settings": SETTINGS, "score": "eval/return_mean"}
    return LoggedRun(directory=directory, resume_step=resume_step, **(common | changes))


def package(monkeypatch, name, **members):
    stub = ModuleType(name)
    for member, value in members.items():
        setattr(stub, member, value)
    monkeypatch.setitem(sys.modules, name, stub)
    return stub


def test_a_resumed_run_is_the_same_wandb_run(tmp_path, monkeypatch):
    started, points = [], []
    run = SimpleNamespace(log=lambda values, step: points.append((step, values)), finish=lambda: None)
    package(monkeypatch, "wandb", init=lambda **options: started.append(options) or run)
    for step in (1, 2):
        logger = WeightsAndBiases(logged(tmp_path))
        logger.write(step, 5.0, {"a": 1.0})
        logger.close()
    assert started[0] == started[1]
    assert (started[0]["project"], started[0]["resume"], len(started[0]["id"])) == ("mine", "allow", 16)
    assert (started[0]["entity"], started[0]["config"]) == ("us", SETTINGS)
    assert points == [(1, {"a": 1.0, "time": 5.0}), (2, {"a": 1.0, "time": 5.0})]
    WeightsAndBiases(logged(tmp_path, entity=""))
    assert started[-1]["entity"] is None


def test_a_resumed_run_is_the_same_trackio_run_and_another_of_its_name_is_not(tmp_path, monkeypatch):
    started, points = [], []
    run = SimpleNamespace(log=lambda values, step: points.append((step, values)), finish=lambda: points.append("end"))
    package(monkeypatch, "trackio", init=lambda **options: started.append(options) or run)
    (tmp_path / "a" / "run").mkdir(parents=True)
    (tmp_path / "b" / "run").mkdir(parents=True)
    for folder in ("a", "a", "b"):
        logger = Trackio(logged(tmp_path / folder / "run"))
    logger.write(1, 5.0, {"a": 1.0})
    logger.close()
    assert started[0] == started[1] and started[0]["name"].startswith("run-")
    assert started[2]["name"] != started[0]["name"]
    assert (started[0]["project"], started[0]["config"]) == ("mine", SETTINGS)
    assert points == [(1, {"a": 1.0}), "end"]


class FakeClient:
    """The few calls of MlflowClient that are used."""

    runs: dict = {}

    def __init__(self, uri):
        self.uri = uri

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if name in self.runs else None

    def create_experiment(self, name):
        self.runs[name] = []
        return name

    def search_runs(self, experiments, query, max_results):
        return [run for run in self.runs[experiments[0]] if run.tag in query]

    def create_run(self, experiment, run_name, tags):
        made = SimpleNamespace(info=SimpleNamespace(run_id=run_name), tag=tags["lockstep_id"], batches=[], ended=0)
        self.runs[experiment].append(made)
        return made

    def _only(self):
        return self.runs["mine"][0]

    def update_run(self, run_id, status):
        self._only().status = status

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        assert len(metrics) <= 100 and len(params) <= 100
        self._only().batches.append((list(metrics), list(params)))

    def set_terminated(self, run_id):
        self._only().ended += 1


def test_a_resumed_run_is_the_same_mlflow_run(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(FakeClient, "runs", {})
    package(monkeypatch, "mlflow", MlflowClient=FakeClient)
    tuples = {name: lambda *values: values for name in ("Metric", "Param", "RunTag")}
    package(monkeypatch, "mlflow.entities", **tuples)
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        logger = MLflow(logged(tmp_path / "run"))
        logger.write(step, 5.0, {f"tag{number}": 1.0 for number in range(150)})
        logger.close()
    (run,) = FakeClient.runs["mine"]
    assert logger._client.uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert (run.ended, run.status) == (2, "RUNNING")
    assert run.batches[0][1][:2] == [("seed", "3"), ("learning_rate", "0.001")]
    assert [len(metrics) for metrics, _ in run.batches] == [0, 100, 50, 100, 50]
    assert run.batches[1][0][0] == ("tag0", 1.0, 5000, 1)


def rows(path):
    with path.open(newline="") as file:
        return [{tag: cell for tag, cell in row.items() if cell} for row in csv.DictReader(file)]


def test_the_csv_has_a_column_for_every_tag_and_no_step_twice(tmp_path):
    first = CsvFile(logged(tmp_path))
    first.write(1, 10.0, {"train/loss": 0.5})
    first.write(2, 11.0, {"train/loss": 0.25, "eval/return_mean": 3.0})
    first.write(3, 12.0, {"train/loss": 0.125})
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("4,13.0,0.0")  # the row that a kill cut off
    second = CsvFile(logged(tmp_path, resume_step=2))
    second.write(3, 14.0, {"train/loss": 0.75, "eval/return_mean": 4.0})
    assert rows(tmp_path / "metrics.csv") == [
        {"step": "1", "time": "10.0", "train/loss": "0.5"},
        {"step": "2", "time": "11.0", "train/loss": "0.25", "eval/return_mean": "3.0"},
        {"step": "3", "time": "14.0", "train/loss": "0.75", "eval/return_mean": "4.0"},
    ]
    CsvFile(logged(tmp_path))
    assert (tmp_path / "metrics.csv").read_text() == "step,time\n", "a new run starts a new file"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"step,time\n1,2,3,4\n-1,2\n\n", b"", b"a\n1\n"])
def test_a_csv_of_somebody_else_is_no_row(tmp_path, content):
    (tmp_path / "metrics.csv").write_bytes(content)
    (background,) = open_loggers(["csv"], logged(tmp_path, resume_step=5))
    background.offer(6, 1.0, {"a": 1.0})
    background.close(time.monotonic() + 5.0)
    if content != b"\xff\xfe":
        assert [row["step"] for row in rows(tmp_path / "metrics.csv")] == ["6"]


def test_tensorboard_has_the_settings_of_the_run(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    TensorBoard(logged(tmp_path)).close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert set(settings) == set(SETTINGS)
    assert (settings["seed"].number_value, settings["target_kl"].string_value) == (3.0, "none")
    content = found.SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = HParamsPluginData.FromString(content).experiment.metric_infos
    assert [metric.name.tag for metric in metrics] == ["eval/return_mean"]


def test_a_package_that_is_missing_is_one_warning_with_its_cure(tmp_path, monkeypatch, caplog):
    for name in ("wandb", "trackio", "mlflow"):
        # None makes an import fail as if it were not there.
        monkeypatch.setitem(sys.modules, name, None)
    for background in open_loggers(["wandb", "trackio", "mlflow"], logged(tmp_path)):
        background.offer(1, 1.0, {"a": 1.0})
        background.close(time.monotonic() + 5.0)
    assert [record.message for record in caplog.records] == [
        "W&B: its package is not installed: pip install wandb; training continues without it",
        "trackio: its package is not installed: pip install trackio; training continues without it",
        "MLflow: its package is not installed: pip install mlflow; training continues without it",
    ]


def test_loggers_are_chosen_by_their_names_and_old_flags_still_work():
    assert RunSettings().logger_names == ("tensorboard",)
    assert RunSettings(loggers="csv,tensorboard,csv", wandb=True).logger_names == ("csv", "tensorboard", "wandb")
    assert RunSettings(loggers="").logger_names == ()


def test_a_run_writes_a_csv_if_asked_and_refuses_loggers_that_it_does_not_know(tmp_path, capsys):
    sizes = "--n-envs 8 --n-steps 8 --batch-size 64 --total-timesteps 128 --eval-every 0 --ranks 1 --device cpu"
    words = f"train snake --preset debug {sizes} --runs-dir {tmp_path} --run-name a --quiet".split()
    assert main([*words, "--loggers", "csv,tensorbord"]) == 2
    assert "mlflow and csv (separated by commas) or none" in capsys.readouterr().err
    assert main([*words, "--loggers", "csv"]) == 0
    assert capsys.readouterr().out == f"done: 128 steps, 2 updates, {tmp_path}/a\n"
    assert [row["step"] for row in rows(tmp_path / "a" / "metrics.csv")] == ["64", "128"]
    assert not (tmp_path / "a" / "tensorboard").exists()
