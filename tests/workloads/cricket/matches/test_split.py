"""Splits: the default shuffle, split files, and every way that a split file can be wrong."""

import json
import random

import pytest

from lockstep.errors import UserError
from lockstep.workloads.cricket.matches.split import check_source, shuffled


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "matches"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.json").write_text("{}")
    return folder


def split_file(tmp_path, content):
    path = tmp_path / "split.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_the_default_split_is_80_10_10_of_the_sorted_names_shuffled_by_python():
    names = [f"{number}.json" for number in range(3046)]
    expected = sorted(names)
    random.Random(42).shuffle(expected)
    split = shuffled(list(reversed(names)), 42)
    assert (len(split.train), len(split.validation), len(split.test)) == (2436, 304, 306)
    assert [*split.train, *split.validation, *split.test] == expected


def test_too_few_matches_cannot_be_split():
    with pytest.raises(UserError, match=r"9 match file\(s\) are too few"):
        shuffled([f"{number}.json" for number in range(9)], 42)


def test_a_split_file_names_the_parts(folder, tmp_path):
    path = split_file(tmp_path, {"train": ["3.json", "1.json"], "val": ["2.json"]})
    _, split = check_source(str(folder), path, 42)
    assert (split.train, split.validation, split.test) == (("3.json", "1.json"), ("2.json",), ())
    assert split.files() == ["1.json", "2.json", "3.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ([], "not a JSON object"),
        ({"train": ["1.json"], "val": ["77.json"]}, "validation names 77.json, which is not in"),
        ({"train": ["1.json"], "val": ["1.json"]}, "1.json is named twice (train and validation)"),
        ({"train": ["1.json", "1.json"], "val": ["2.json"]}, "1.json is named twice (train and train)"),
        ({"train": ["1.json"], "val": []}, "names no match for validation"),
        ({"train": ["1.json"]}, "names no match for validation"),
        ({"train": "1.json", "val": ["2.json"]}, "train is not a list of file names"),
        ({"train": [1], "val": ["2.json"]}, "train is not a list of file names"),
        ({"training": ["1.json"], "val": ["2.json"]}, "training is not a part; allowed: train, val, test"),
    ],
)
def test_a_bad_split_file_is_refused_in_one_line_that_names_it(folder, tmp_path, content, words):
    with pytest.raises(UserError) as error:
        check_source(str(folder), split_file(tmp_path, content), 42)
    assert words in str(error.value) and "split.json" in str(error.value) and "\n" not in str(error.value)


def test_a_missing_split_file_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        check_source(str(folder), str(tmp_path / "missing.json"), 42)
