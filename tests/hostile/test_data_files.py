"""Data files made to harm: pipes and devices are not waited for, and nothing is read that was not measured."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest
import torch

from lockstep.errors import UserError
from lockstep.storage.torch_file import read_torch_file
from lockstep.workloads.control.convert import read_chunk
from lockstep.workloads.control.episodes import EpisodeFiles
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.cricket.matches.archive import open_archive
from lockstep.workloads.cricket.matches.split import read_split
from lockstep.workloads.snakes3v3.competition.gamelog import read_log
from lockstep.workloads.trading.market import table_file
from lockstep.workloads.trading.market.bars_file import BarsFile
from lockstep.workloads.trading.paper.account_file import read_account

ONE = TaskFacts(("pendulum-swingup",), (3,), (1,), (500,))


@pytest.fixture
def matches(tmp_path):
    (tmp_path / "matches").mkdir()
    (tmp_path / "matches" / "1.json").write_text("{}")
    return open_archive(tmp_path / "matches")


READERS = {
    "bars.csv": lambda path, _: list(BarsFile(str(path))),
    "bars.parquet": lambda path, _: list(BarsFile(str(path))),
    "paper.json": lambda path, _: read_account(path, {}, {}),
    "matches.zip": lambda path, _: open_archive(path),
    "split.json": read_split,
    "log.json": lambda path, _: read_log(path),
    "data/episodes-0.safetensors": lambda path, _: EpisodeFiles(path.parent, ONE),
    "chunk.pt": lambda path, _: list(read_chunk(path, ONE)),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "10 GB"])
def test_no_reader_of_data_waits_or_fills_the_memory(tmp_path, matches, name, kind):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "10 GB":
        path.touch()
        os.truncate(path, 10 << 30)
    else:
        path.symlink_to(Path("/dev/zero") if kind == "device" else path)
    with pytest.raises(UserError) as refusal:
        READERS[name](path, matches)
    assert "\n" not in str(refusal.value)


def test_a_link_that_the_user_made_is_followed(tmp_path, matches):
    (tmp_path / "split.json").write_text('{"train": ["1.json"], "val": []}')
    (tmp_path / "link.json").symlink_to("split.json")
    with pytest.raises(UserError, match="names no match for validation"):
        read_split(tmp_path / "link.json", matches)


def test_a_gzip_bomb_is_refused_at_the_size_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "_LARGEST_FILE", 1 << 20)
    row = b"2020-01-02,A,1,1,1,1,1\n"
    (tmp_path / "bars.csv").write_bytes(gzip.compress(b"date,symbol,open,high,low,close,volume\n" + row * 100_000))
    with pytest.raises(UserError, match="exceeds the limit of 0 GiB for a file"):
        list(BarsFile(str(tmp_path / "bars.csv")))


def test_a_tensor_that_is_larger_than_its_numbers_is_refused(tmp_path):
    # One number, seen as a thousand billion: copying it would take all memory.
    torch.save({"w": torch.zeros(1).expand(1 << 40)}, tmp_path / "file.pt")
    assert zipfile.is_zipfile(tmp_path / "file.pt")
    with pytest.raises(ValueError, match="a tensor of"):
        read_torch_file(tmp_path / "file.pt")
