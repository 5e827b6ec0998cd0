"""Preparing tables: cached once, the same on all ranks, one error for all, and the counts of the shared data."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.storage import user_cache
from lockstep.workloads.cricket.data import preparation
from lockstep.workloads.cricket.data.cache import is_whole, read_store
from lockstep.workloads.cricket.data.preparation import describe_matches, open_splits, open_store, prepare
from lockstep.workloads.cricket.matches.match import read_match
from lockstep.workloads.cricket.matches.split import check_source
from lockstep.workloads.cricket.reports.baselines import BASELINES, log_loss
from lockstep.workloads.cricket.settings import CricketSettings

SHARED = Path(__file__).parents[4].parent / "shared" / "data" / "cricket"


def where(cache_dir, data="", matches=24, **more):
    """Settings with a cache directory and a source of matches."""
    return CricketSettings(cache_dir=str(cache_dir), data=data, matches=matches, **more)


def test_the_league_gives_three_tables_and_is_prepared_once(tmp_path, monkeypatch):
    settings = where(tmp_path)
    splits = open_splits(settings, World())
    assert (len(splits.train.matches), len(splits.validation.matches), len(splits.test.matches)) == (19, 2, 3)
    assert len(splits.entities.players) == len(splits.entities.player_balls)
    assert splits.entities.players[0] == "unknown" and splits.entities.player_balls[0] == 0
    assert splits.train.state.dtype == torch.float32 and splits.train.ids.dtype == torch.int64
    monkeypatch.setattr(preparation, "simulate", lambda *_: pytest.fail("prepared again"))
    again = open_splits(settings, World())
    for name, tensor in splits.train.tensors().items():
        assert torch.equal(tensor, again.train.tensors()[name])


def test_the_cache_holds_no_code_and_follows_the_source(tmp_path, match_file, folder_of):
    source = folder_of(tmp_path / "matches")
    settings = where(tmp_path / "cache", source)
    first = prepare(settings)
    assert {file.suffix for file in first.iterdir()} == {".safetensors", ".json"}
    assert prepare(settings) == first
    (tmp_path / "matches" / "00.json").write_text(match_file(20))
    second = prepare(settings)
    assert second != first and is_whole(first) and is_whole(second)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".tmp")]


def test_careers_of_earlier_days_are_data_of_their_own(tmp_path):
    usual, earlier = (open_store(where(tmp_path, careers=careers), World()) for careers in ("all", "earlier"))
    # A digest of their own: `resume` refuses a run of the other kind, and neither overwrites the other's tables.
    assert usual.source != earlier.source and len(list(tmp_path.iterdir())) == 2
    assert usual.chronicle is None and earlier.chronicle is not None
    assert torch.equal(usual.tables["train"].label, earlier.tables["train"].label)
    assert not torch.equal(usual.tables["validation"].career, earlier.tables["validation"].career)


def test_nothing_is_written_beside_the_users_matches(tmp_path, folder_of, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine").mkdir()
    source = folder_of(tmp_path / "mine" / "matches")
    before = sorted((tmp_path / "mine").rglob("*"))
    path = prepare(where("", source))
    assert path.parent == tmp_path / "cache" / "lockstep"
    assert sorted((tmp_path / "mine").rglob("*")) == before
    # Beyond the limit the older table goes; the one that was just made stays.
    monkeypatch.setattr(preparation, "trim", lambda folder: user_cache.trim(folder, limit=1))
    other = prepare(where("", matches=12))
    assert is_whole(other) and not path.exists()


def test_the_digest_depends_on_matches_and_split_alone(tmp_path, match_file, folder_of, monkeypatch):
    source = folder_of(tmp_path / "matches")

    def digest(**changes):
        return open_store(where(**{"cache_dir": str(tmp_path / "cache"), "data": source} | changes), World()).source

    first = digest()
    assert digest(cache_dir=str(tmp_path / "other"), bad_files="skip") == first
    assert digest(split_seed=1) != first
    monkeypatch.setattr(preparation, "FORMAT", -1)
    assert preparation._digest(where("", source), *check_source(source, "", 42)) == first
    monkeypatch.undo()
    (tmp_path / "matches" / "00.json").write_text(match_file(20))
    assert digest() != first


@pytest.mark.parametrize("damage", ["cut", "words"])
def test_a_damaged_cache_is_rebuilt(tmp_path, damage):
    settings = where(tmp_path, matches=12)
    path = prepare(settings)
    whole = {file.name: file.read_bytes() for file in path.iterdir()}
    if damage == "cut":
        (path / "train.safetensors").write_bytes(whole["train.safetensors"][:-1])
    else:
        (path / "words.json").write_text("{")
    assert prepare(settings) == path
    assert {file.name: file.read_bytes() for file in path.iterdir()} == whole


def test_a_cache_is_whole_only_with_all_files_and_of_this_format(tmp_path):
    path = prepare(where(tmp_path, matches=12))
    text = (path / "words.json").read_text()
    (path / "words.json").write_text(json.dumps({**json.loads(text), "format": -1}))
    assert not is_whole(path)
    (path / "words.json").write_text(text)
    assert is_whole(path)
    (path / "knowledge.safetensors").unlink()
    assert not is_whole(path) and not is_whole(tmp_path / "nowhere")


def test_a_bad_file_is_refused_or_skipped_as_configured(tmp_path, capsys, folder_of):
    source = folder_of(tmp_path / "matches", broken='{"info": {')
    with pytest.raises(UserError, match=r"broken\.json: not valid JSON .* or use --bad-files skip"):
        open_splits(where(tmp_path / "cache", source), World())
    splits = open_splits(where(tmp_path / "cache", source, bad_files="skip"), World())
    parts = (splits.train, splits.validation, splits.test)
    assert sum(len(part.matches) for part in parts) == 12
    assert "left out broken.json: not valid JSON" in capsys.readouterr().err


def test_training_matches_without_a_delivery_are_refused(tmp_path, match_file):
    folder = tmp_path / "matches"
    folder.mkdir()
    for number in range(12):
        content = json.loads(match_file(number))
        (folder / f"{number}.json").write_text(json.dumps({**content, "innings": []}))
    with pytest.raises(UserError, match="no match for train has a delivery"):
        prepare(where(tmp_path / "cache", str(folder)))


def test_other_matches_are_described_by_the_training_careers(tmp_path, folder_of, capsys):
    source = folder_of(tmp_path / "matches")
    store = open_store(where(tmp_path / "cache", source), World())
    (tmp_path / "matches" / "broken.json").write_text("[]")
    with pytest.raises(UserError, match=r"broken\.json: the file is not a JSON object"):
        describe_matches(source, "refuse", store, World())
    table = describe_matches(source, "skip", store, World())
    assert "left out broken.json: the file is not a JSON object" in capsys.readouterr().err
    # Those that were trained on are left out.
    trained_on = {match.file for match in store.tables["train"].matches}
    assert not trained_on & {match.file for match in table.matches} and len(table.matches) == 3
    stored = {match.file: number for number, match in enumerate(store.tables["validation"].matches)}
    (file,) = stored
    here = [match.file for match in table.matches].index(file)
    expected = store.tables["validation"].state
    assert torch.equal(table.state[table.match == here].float(), expected)


def test_an_unwritable_cache_directory_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match=r"cache_dir .*file: cannot be written"):
        prepare(where(blocked, matches=12))


def prepared_on_ranks(world, cache, source):
    """Open the same source on every rank; returns the result or the error."""
    try:
        splits = open_splits(where(cache, source), world)
    except UserError as error:
        return str(error)
    return [splits.train.samples, float(splits.train.state.double().sum()), splits.entities.players]


def test_one_rank_prepares_while_the_others_wait(ranks, tmp_path, folder_of):
    source = folder_of(tmp_path / "matches")
    answers = ranks.run(prepared_on_ranks, str(tmp_path / "cache"), source, ranks=3)
    assert answers[0] == answers[1] == answers[2] and answers[0][0] == 9 * 2 * 29
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("trouble", ["broken file", "no source", "empty zip", "unwritable cache"])
def test_an_error_of_the_preparing_rank_is_raised_on_all_ranks(ranks, tmp_path, trouble, folder_of):
    source, cache = folder_of(tmp_path / "matches", broken="[]"), tmp_path / "cache"
    if trouble == "no source":
        shutil.rmtree(source)
    elif trouble == "empty zip":
        shutil.rmtree(source)
        zipfile.ZipFile(source, "w").close()
    elif trouble == "unwritable cache":
        (tmp_path / "matches" / "broken.json").unlink()
        cache.write_text("")
    answers = ranks.run(prepared_on_ranks, str(cache), source, ranks=3)
    assert isinstance(answers[0], str) and "\n" not in answers[0] and answers == [answers[0]] * 3


def lost_on_one_rank(world, cache, source):
    """Like the one above, but the second rank's disk lacks what the first wrote."""
    if world.rank == 1:
        preparation.read_store = lambda path: (_ for _ in ()).throw(ValueError(path))
    try:
        return prepared_on_ranks(world, cache, source)
    finally:
        preparation.read_store = read_store


def test_a_cache_that_one_rank_cannot_read_is_an_error_on_all_ranks(ranks, tmp_path, folder_of):
    source = folder_of(tmp_path / "matches")
    try:
        answers = ranks.run(lost_on_one_rank, str(tmp_path / "cache"), source, ranks=2)
    except RankError as error:
        pytest.fail(str(error))
    assert answers[0] == answers[1] and "on a shared disk" in answers[0]


needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cricket data is not there")


@needs_shared
def test_the_shared_data_has_the_recorded_number_of_samples():
    archive, split = check_source(str(SHARED / "t20s_male_json.zip"), str(SHARED / "split.json"), 42)
    samples = dict.fromkeys(split.parts(), 0)
    part_of = {file: part for part, files in split.parts().items() for file in files}
    for file, content in archive.read(split.files()):
        rows = read_match(file, content).rows
        samples[part_of[file]] += len(rows) - len(np.unique(rows[:, 0]))
    assert samples == {"train": 544_685, "validation": 67_264, "test": 0}


@needs_shared
@pytest.mark.slow
def test_the_shared_data_gives_the_recorded_baselines(tmp_path):
    settings = where(tmp_path, str(SHARED / "t20s_male_json.zip"), split=str(SHARED / "split.json"))
    splits = open_splits(settings, World())
    assert (splits.train.samples, splits.validation.samples, splits.test) == (544_685, 67_264, None)
    shares = splits.train.class_counts() / splits.train.samples
    assert torch.allclose(shares, torch.tensor([0.3898, 0.3419, 0.0698, 0.0045, 0.0945, 0.0424, 0.0571]), atol=6e-5)
    assert splits.train.longest == 144
    train, held_out = splits.train, splits.validation
    measured = {name: log_loss(predict(train, held_out), held_out) for name, predict in BASELINES.items()}
    assert measured["prior"] == pytest.approx(1.4710, abs=1e-4)
    assert measured["phase"] == pytest.approx(1.4468, abs=1e-4)
    assert measured["over"] == pytest.approx(1.4363, abs=1e-4)
    assert measured["additive"] < 1.414
