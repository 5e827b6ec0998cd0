import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from lockstep.config.config import AlgorithmSettings, Layout, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Alias, Count, Range, Spelling, describe_fields
from lockstep.config.run_settings import RunSettings
from lockstep.errors import UserError
from lockstep.workloads import registry


@dataclass(frozen=True, kw_only=True)
class Toy(AlgorithmSettings):
    """Toy: an algorithm with one of everything."""

    size: Annotated[Count, Alias("amount")] = 16
    """Things, over all ranks."""
    rate: Annotated[float, Range(above=0)] = 1e-3
    """How fast."""
    limit: Annotated[float | None, Range(at_least=-1, below=5)] = None
    """How far, or none."""
    mode: Annotated[Literal["slow", "quick"], Spelling("rapid", "quick")] = "slow"
    """Which way."""

    per_rank_fields: ClassVar[tuple[str, ...]] = ("size",)
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("rate",)

    def lane_units(self):
        return self.size

    def check(self, config):
        if self.size % config.effective_lanes:
            raise UserError(f"size {self.size} must be a multiple of {config.effective_lanes}")


class NoNetwork(NetworkSettings):
    """Has no settings of its own."""

    def build(self, problem, config):
        raise AssertionError("these tests build no network")


TOY = Layout(Toy, algorithm_name="toy", network=NoNetwork)


def toy(**values):
    return TOY.config(values)


def refusal(make, *args, **fields):
    with pytest.raises(UserError) as caught:
        make(*args, **fields)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_a_configuration_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        toy().algorithm.size = 8


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"size": 0}, "size 0: out of range; allowed: a whole number of at least 1"),
        ({"size": "8"}, "size 8: is of type str; allowed: a whole number of at least 1"),
        ({"size": True}, "size True: is of type bool; allowed: a whole number of at least 1"),
        ({"size": 2**80}, "beyond 9223372036854775807"),
        ({"rate": math.nan}, "rate nan: not a finite number; allowed: a number above 0"),
        ({"rate": math.inf}, "rate inf: not a finite number"),
        ({"rate": 1e39}, "rate 1e+39: not a finite number"),
        ({"rate": 10**400}, "not a finite number"),
        ({"rate": None}, "rate null: a value is needed"),
        ({"limit": 5.0}, "limit 5.0: out of range; allowed: a number of at least -1 and below 5 or none"),
        ({"mode": "rapid"}, "mode rapid: no such choice; allowed: one of slow, quick, rapid"),
        ({"runs_dir": ""}, "runs_dir '': does not fit; allowed: the path of a folder"),
        ({"runs_dir": "a\nb"}, "runs_dir 'a\\nb': has a character that cannot be printed"),
        ({"runs_dir": "x" * 2000}, "longer than 1024 characters"),
        ({"runs_dir": "a/" + "x" * 256}, "has a name longer than 255 bytes in it; allowed: the path of a folder"),
        ({"size": 12}, "size 12 must be a multiple of 8"),
    ],
)
def test_a_wrong_configuration_cannot_be_made(fields, words):
    assert words in refusal(toy, **fields)


def test_a_whole_number_becomes_a_float_where_a_float_is_asked_for():
    assert repr(toy(rate=1).algorithm.rate) == "1.0"


@pytest.mark.parametrize(
    "name",
    ["../x", "/tmp/x", "a/b", "a\\b", "a\0", "a\n", ".hidden", "..", "-x", "x" * 101, "CON", "nul.txt", "ä", "a b"],
)
def test_a_run_name_that_is_no_plain_folder_is_refused(name):
    assert "run_name" in refusal(RunSettings, run_name=name)


@pytest.mark.parametrize("name", ["", "a", "snake-2025.01.08_143000", "x" * 100, "console", "0"])
def test_a_plain_run_name_is_accepted(name):
    assert RunSettings(run_name=name).run_name == name


@pytest.mark.parametrize(
    ("size", "lanes", "effective"), [(16, 0, 8), (8, 0, 8), (4, 0, 4), (2, 0, 2), (1, 0, 1), (12, 6, 6), (16, 16, 16)]
)
def test_lanes_are_eight_or_as_many_as_there_are_units(size, lanes, effective):
    assert toy(size=size, lanes=lanes).effective_lanes == effective


def test_lanes_without_units_are_eight():
    assert Layout(AlgorithmSettings, network=NoNetwork).config({}).effective_lanes == 8


def test_strong_scaling_leaves_every_number_on_any_world():
    assert toy().for_world(8) == toy()


def test_weak_scaling_multiplies_sizes_and_the_rate_by_the_world():
    weak = toy(size=16, rate=0.001, scaling="weak")
    assert weak.for_world(4) == toy(size=64, rate=0.001)
    assert weak.replace(lr_scaling="linear").for_world(4) == toy(size=64, rate=0.004)
    assert weak.replace(lr_scaling="sqrt").for_world(4) == toy(size=64, rate=0.002)


def test_weak_scaling_is_worked_out_once():
    once = toy(scaling="weak", lr_scaling="sqrt").for_world(2)
    assert once.for_world(2) == once


def test_scaling_the_rate_needs_weak_scaling():
    assert refusal(toy, lr_scaling="sqrt").startswith("lr_scaling sqrt needs scaling weak")


def test_more_ranks_than_lanes_are_refused():
    message = refusal(toy().for_world, 9)
    assert message.startswith("ranks 9 is more than the run's 8 lanes; ")
    assert "--lanes 9" in message
    assert toy(lanes=16).for_world(9).run.lanes == 16


def test_help_lists_every_field_under_the_class_that_declares_it():
    fields, run = TOY.schema.described()
    assert fields.title == "Toy: an algorithm with one of everything."
    assert [(item.name, item.doc) for item in fields.fields] == [
        ("size", "Things, over all ranks."),
        ("rate", "How fast."),
        ("limit", "How far, or none."),
        ("mode", "Which way."),
    ]
    assert fields.fields[0].aliases == ("amount",)
    assert fields.fields[0].default == 16
    assert fields.fields[3].allowed == "one of slow, quick, rapid"
    assert run.title == "How to run: the same for every workload."
    assert "sync" in [item.name for item in run.fields]


def test_help_shows_a_redeclared_field_once_with_its_own_default():
    @dataclass(frozen=True, kw_only=True)
    class Louder(Toy):
        """Louder."""

        rate: Annotated[float, Range(above=0)] = 0.5

    louder, toy = describe_fields(Louder)
    assert [(item.name, item.default, item.doc) for item in louder.fields] == [("rate", 0.5, "How fast.")]
    assert "rate" not in [item.name for item in toy.fields]


def test_every_field_of_a_run_has_a_line_of_help():
    (group,) = describe_fields(RunSettings)
    assert [item.name for item in group.fields if not item.doc.endswith(".")] == []


def test_a_field_that_names_a_file_is_found_from_any_working_directory(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Reader(WorkloadSettings):
        """Reads."""

        source: str = ""
        path_fields = ("source",)

    monkeypatch.chdir(tmp_path)
    assert Reader().source == "" and Reader(source="a/b").source == str(tmp_path / "a" / "b")
    assert Reader(source=Reader(source="a").source).source == str(tmp_path / "a")


@dataclass(frozen=True, kw_only=True)
class Days(WorkloadSettings):
    """A workload whose users count in days."""

    days: int = 0
    aliases = {"speed": "rate"}

    def translate(self, config):
        return {"size": self.days * 8, "days": 0} if self.days else {}


def test_a_workload_may_give_settings_of_other_groups_in_units_of_its_own():
    config = Layout(Toy, Days, network=NoNetwork).config({"days": 3})
    assert config.algorithm.size == 24
    # The days are used up, so that a size that is given later counts.
    assert config.replace(size=8).algorithm.size == 8


def test_a_setting_is_found_by_its_name_an_alias_and_with_its_section():
    schema = Layout(Toy, Days, algorithm_name="toy", workload_name="week", network=NoNetwork).schema
    for key in ("rate", "toy.rate", "speed", "toy.speed"):
        assert schema.find(key).name == "rate"
    assert schema.find("week.days").name == schema.find("days").name == "days"
    assert schema.find("run.seed").name == "seed"
    assert schema.find("week.rate") is None and schema.find("other.rate") is None


def test_two_groups_cannot_have_a_setting_of_the_same_name():
    @dataclass(frozen=True, kw_only=True)
    class Same(WorkloadSettings):
        size: int = 1

    layout = Layout(Toy, Same, algorithm_name="toy", workload_name="week", network=NoNetwork)
    assert refusal(layout.config, {}) == "size: a setting of toy and of week; rename it in Same"


def test_the_algorithm_and_the_workload_may_change_defaults_of_the_run_and_the_user_still_wins():
    @dataclass(frozen=True, kw_only=True)
    class Seldom(Toy):
        run_defaults = {"eval_every": 7, "log_every": 3}

    layout = Layout(Seldom, defaults=(("log_every", 5),), network=NoNetwork)
    assert (layout.config({}).run.eval_every, layout.config({}).run.log_every) == (7, 5)
    assert layout.config({"log_every": 2}).run.log_every == 2
    shown = {item.name: item.default for group in layout.schema.described() for item in group.fields}
    assert (shown["eval_every"], shown["log_every"], shown["keep"]) == (7, 5, 3)


def test_another_algorithm_is_another_run():
    config = toy()
    assert config.run.algorithm == "toy"
    assert refusal(config.replace, algorithm="ppo") == "algorithm ppo: this run has toy; start a new run with it"


@pytest.mark.parametrize("workload, name", [("control", "data_dir"), ("control", "load_model"), ("trading", "data")])
@pytest.mark.parametrize("text", ["none", "None", "null", ""])
def test_none_is_no_folder_for_a_path_that_may_be_left_open(workload, name, text):
    chosen = registry.load(workload)
    assert chosen.resolve("debug", overrides=[f"{name}={text}"]).config.values()[name] == ""
    assert chosen.read_config(f"{name}: {text or 'null'}").values()[name] == ""
    # A folder of that name can still be meant.
    assert chosen.resolve("debug", overrides=[f"{name}=./none"]).config.values()[name].endswith("none")
