"""A grid of settings: lists and ranges are read by the schema, and every combination is made once."""

import pytest

from lockstep.config.grid import Axis, Choice, Span, read_grid, run_name, split_values
from lockstep.errors import UserError
from lockstep.workloads.snake.workload import Snake
from lockstep.workloads.trading.workload import Trading

SNAKE = [Snake().layout().schema]
TRADING = [Trading().layout().schema]


def refused(schemas, *words):
    with pytest.raises(UserError) as error:
        read_grid(schemas, words)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", ["1"]),
        ("1,2,3", ["1", "2", "3"]),
        (" 1, 2 ", ["1", "2"]),
        ('"a,b",c', ["a,b", "c"]),
        ("'a,b'", ["a,b"]),
        ('"",x', ["", "x"]),
        ("", [""]),
        ("it's,x", ["it's", "x"]),
    ],
)
def test_values_are_separated_by_commas_outside_of_quotes(text, values):
    assert split_values(text) == values


@pytest.mark.parametrize("text", ["1,,2", ",", "1,", '"a,b', '"a"b,c'])
def test_an_empty_value_and_an_open_quote_are_refused(text):
    with pytest.raises(ValueError):
        split_values(text)


def test_two_rates_and_three_seeds_are_six_combinations_with_the_last_changing_fastest():
    grid = read_grid(SNAKE, ["--learning-rate", "1e-4,3e-4", "--n-envs=16", "seed=1,2,3"])
    assert grid.names == ("learning_rate", "seed")
    assert grid.fixed == ("n_envs=16",)
    assert len(grid) == 6
    values = [tuple(choice.value for choice in values.values()) for values in grid.combinations()]
    assert values == [(1e-4, 1), (1e-4, 2), (1e-4, 3), (3e-4, 1), (3e-4, 2), (3e-4, 3)]


def test_an_alias_and_a_switch_are_read_as_by_train():
    grid = read_grid(SNAKE, ["--eval-freq", "100,200", "--no-normalize-advantage", "--wandb", "false,true"])
    assert grid.axes == (
        Axis("eval_every", (Choice("100", 100), Choice("200", 200))),
        Axis("wandb", (Choice("false", False), Choice("true", True))),
    )
    assert grid.fixed == ("normalize_advantage=false",)


def test_commas_stay_in_the_value_of_a_list_unless_each_value_is_in_quotes():
    assert read_grid(TRADING, ["--symbols", "AAPL,MSFT"]).fixed == ("symbols=AAPL,MSFT",)
    (axis,) = read_grid(TRADING, ["--symbols", '"AAPL,MSFT","SPY"']).axes
    assert [choice.value for choice in axis.choices] == ["AAPL,MSFT", "SPY"]


def test_a_range_is_logarithmic_if_its_ends_are_a_factor_of_ten_apart():
    grid = read_grid(SNAKE, ["--learning-rate", "1e-5..1e-2", "--gamma", "0.9..0.99", "--n-epochs", "1..8"])
    assert grid.spans == (Span("learning_rate", 1e-5, 1e-2), Span("gamma", 0.9, 0.99), Span("n_epochs", 1, 8))
    assert [span.logarithmic for span in grid.spans] == [True, False, False]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--learning-rat", "1,2"], "learning-rat '1,2' (flag --learning-rat): unknown setting; the nearest name is"),
        (["--seed", "1,x"], "seed x (flag --seed): not a whole number"),
        (["--seed", "1,,2"], "seed '1,,2' (flag --seed): has an empty value between commas; allowed: one or more"),
        (["--seed", ","], "seed ',' (flag --seed): has an empty value"),
        (["--seed", ""], "seed '' (flag --seed): not a whole number"),
        (["--learning-rate", "1e-4,0.0001"], "has 0.0001 twice"),
        (["--learning-rate", "1e-2..1e-5"], "not a range; allowed: LOWER..HIGHER, each a number above 0"),
        (["--learning-rate", "0..1"], "learning_rate 0 (flag --learning-rate): out of range"),
        (["--seed", ",".join(map(str, range(101))), "--n-epochs", ",".join(map(str, range(1, 101)))], "10,100 comb"),
    ],
)
def test_what_cannot_be_swept_is_told_in_one_line(words, told):
    assert told in refused(SNAKE, *words)


def test_a_run_is_named_by_its_values():
    assert run_name({"learning_rate": 1e-4, "seed": 1}) == "learning_rate-0.0001--seed-1"
    assert run_name({"wandb": True, "target_kl": None}) == "wandb-true--target_kl-none"


def test_names_stay_apart_where_values_are_long_or_have_other_characters():
    first, second = run_name({"data": "a/b.csv"}), run_name({"data": "a:b.csv"})
    assert first != second
    assert first.startswith("data-a_b.csv-")
    long = [run_name({"task": "x" * 200 + end}) for end in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) == 100
