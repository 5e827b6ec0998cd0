import random
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
import yaml

from lockstep.config.config import AlgorithmSettings, Layout, NetworkSettings
from lockstep.config.fields import Alias, Range, Spelling
from lockstep.config.sources import choices, choices_in, from_yaml, resolve, to_yaml
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Toy(AlgorithmSettings):
    """Toy: one of everything."""

    size: Annotated[int, Range(at_least=1), Alias("amount")] = 16
    rate: Annotated[float, Range(above=0), Alias("lr")] = 1e-3
    bonus: float = 0.0
    limit: Annotated[float | None, Range(above=0)] = None
    mode: Annotated[Literal["slow", "quick"], Spelling("rapid", "quick")] = "slow"
    switch: bool = False

    only_values: ClassVar[dict[str, str]] = {"policy": "CnnPolicy"}


class NoNetwork(NetworkSettings):
    """Has no settings of its own."""

    def build(self, problem, config):
        raise AssertionError("these tests build no network")


TOY = Layout(Toy, algorithm_name="toy", network=NoNetwork)


def toy(**values):
    return TOY.config(values)


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "toy.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(*words, base=toy(), config_file=None):  # noqa: B008 - frozen
    return resolve(base, config_file=config_file, overrides=words).config


def refusal(*words, **kwargs):
    with pytest.raises(UserError) as caught:
        read(*words, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    "words",
    [
        ["--size", "32"],
        ["--size=32"],
        ["size=32"],
        ["--amount", "32"],
        ["--toy.size", "32"],
        ["toy.amount=32"],
        ["--size", "3.2e1"],
        ["--size", "3_2"],
        ["--size", "32.0"],
        ["--size", "1", "--size", "32"],
    ],
)
def test_a_flag_has_three_forms_and_a_number_several_spellings(words):
    assert read(*words) == toy(size=32)


def test_dash_and_underscore_are_the_same():
    assert read("--run-name", "a", "--eval_every", "7", "max-updates=3") == toy(
        run_name="a", eval_every=7, max_updates=3
    )


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--switch"], True),
        (["--switch", "true"], True),
        (["--switch", "false"], False),
        (["--switch=yes"], True),
        (["switch=Off"], False),
        (["--switch", "--size", "2"], True),
        (["--switch", "size=2"], True),
        (["--no-switch"], False),
        (["--switch", "--no_switch"], False),
    ],
)
def test_a_switch_is_given_bare_with_a_word_or_negated(words, value):
    assert read(*words, base=toy(switch=not value)).algorithm.switch is value


@pytest.mark.parametrize("word", ["none", "null", "None", ""])
def test_an_optional_field_can_be_given_up(word):
    assert read(f"limit={word}", base=toy(limit=2.0)).algorithm.limit is None


def test_negative_numbers_and_small_exponents_are_values():
    assert read("--bonus", "-1.5e-2").algorithm.bonus == -0.015


def test_another_spelling_of_a_choice_means_the_choice():
    assert read("--mode", "rapid").algorithm.mode == "quick"
    assert read("--precision", "amp").run.precision == "bf16"
    assert read("--save-freq", "5", "--eval-freq", "6") == toy(checkpoint_every=5, eval_every=6)


def test_flags_win_over_the_file_and_the_file_over_the_preset(file):
    path = file("size: 2\nrate: 0.5\n")
    resolved = resolve(toy(size=1, rate=0.1, bonus=7.0), config_file=path, overrides=["--size", "3"])
    assert resolved.config == toy(size=3, rate=0.5, bonus=7.0)
    assert resolved.sources == {"size": "flag --size", "rate": f"{path}:2"}
    assert resolved.explicit == {"size", "rate"}


def test_options_that_are_no_run_can_be_read_too():
    @dataclass(frozen=True)
    class Options:
        ranks: Annotated[int, Range(at_least=1)] = 1

    assert resolve(Options(), overrides=["--ranks", "4"]).config == Options(ranks=4)
    with pytest.raises(UserError, match="ranks 0"):
        resolve(Options(), overrides=["--ranks", "0"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sise", "3"], "sise 3 (flag --sise): unknown setting; the nearest name is size; --help lists all"),
        (["--amoun", "3"], "the nearest name is size"),
        (["--Switch"], "unknown setting; the nearest name is switch"),
        (["zzzzzz=3"], "zzzzzz 3 (override zzzzzz=): unknown setting; no known name is near it"),
        (["a.__class__=int"], "a.__class__ int (override a.__class__=): unknown setting"),
        (["__class__=int"], "__class__ int (override __class__=): unknown setting"),
        (["validate=int"], "validate int (override validate=): unknown setting"),
        (["per_rank_fields=int"], "unknown setting"),
        (
            ["optimizer._target_=os.system"],
            "optimizer._target_ os.system (override optimizer._target_=): unknown setting",
        ),
        (["--rate", "nan"], "rate nan (flag --rate): not a finite number; allowed: a number above 0"),
        (["--lr", "inf"], "rate inf (flag --lr): not a finite number"),
        (["rate=1e999"], "rate 1e999 (override rate=): not a finite number"),
        (["rate=0"], "rate 0 (override rate=): out of range; allowed: a number above 0"),
        (["--size", "-1"], "size -1 (flag --size): out of range; allowed: a whole number of at least 1"),
        (["--size", "1e30"], "size 1e30 (flag --size): beyond 9223372036854775807"),
        (["--size", "1e999999999999"], "size 1e999999999999 (flag --size)"),
        (["--size", "1.5"], "size 1.5 (flag --size): not a whole number"),
        (["--size", "0x10"], "not a whole number"),
        (["--size", "\u0663"], "not a whole number"),
        (["--size", ""], "size '' (flag --size): not a whole number"),
        (["--size", "none"], "not a whole number"),
        (["--size"], "size (flag --size): a value is needed; allowed: a whole number of at least 1"),
        (["--size", "--rate", "1"], "size (flag --size): a value is needed"),
        (["--mode", "fast"], "mode fast (flag --mode): no such choice; allowed: one of slow, quick, rapid"),
        (["--switch", "maybe"], "switch maybe (flag --switch): not a switch; allowed: true or false"),
        (["--no-size"], "no-size (flag --no-size): unknown setting"),
        (["32"], "32: not a setting; allowed: --field value or field=value"),
        (["-s", "3"], "-s: not a setting"),
        (["--"], "unknown setting"),
        (["=3"], "not a setting"),
        (["--run-name", "${env:HOME}"], "run_name '${env:HOME}' (flag --run-name): does not fit"),
        (["--policy", "MlpPolicy"], "policy MlpPolicy (flag --policy): cannot be chosen here; allowed: CnnPolicy"),
        (["--other.size", "3"], "other.size 3 (flag --other.size): unknown setting"),
        (["--size", "x" * 500], "size '" + "x" * 57 + "...' (flag --size): not a whole number"),
        (["a\nb=1"], "'a\\nb' 1 (override 'a\\nb'=): unknown setting"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line_with_key_value_place_and_what_is_allowed(words, message):
    assert message in refusal(*words)


def test_a_variable_is_never_expanded():
    assert read("--runs-dir", "${env:HOME}/$HOME").run.runs_dir == "${env:HOME}/$HOME"


def test_a_key_with_one_answer_is_accepted_with_that_answer():
    assert read("policy=CnnPolicy") == toy()


def test_sections_of_a_file_are_flattened_and_notes_ignored(file):
    path = file(
        """
        # what others call these sections does not matter
        ppo: {rate: 3e-4, inner: {limit: null, amount: 1e3}}
        training:
          bonus: -1
          notes: |
            free text: at any depth
        switch: yes
        policy: CnnPolicy
        notes: [anything, {size: 3}]
        """
    )
    assert read(config_file=path, base=toy(limit=3.0)) == toy(rate=3e-4, size=1000, bonus=-1.0, switch=True)


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n{}\n", "notes: nothing", "\ufeffnotes: x"])
def test_a_file_may_set_nothing(file, content):
    assert read(config_file=file(content)) == toy()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ppo:\n  sise: 3\n", "sise 3 (FILE:2): unknown setting; the nearest name is size"),
        ("\n\nsize: big\n", "size big (FILE:3): not a whole number; allowed: a whole number of at least 1"),
        ("size:\n", "size null (FILE:1): a value is needed"),
        ("run_name: ~", "run_name null (FILE:1): a value is needed"),
        ("rate: .nan\n", "rate .nan (FILE:1): not a finite number"),
        ("size: 1\nrate: 1\nsize: 2\n", "FILE:3: size is given twice, first in line 1"),
        ("size: 1\na: {amount: 2}\n", "size 2 (FILE:2): given before, at FILE:1"),
        ("max-updates: 1\nmax_updates: 2\n", "max_updates 2 (FILE:2): given before, at FILE:1"),
        ("a: 1\nnotes: x\nnotes: y", "FILE:3: notes is given twice"),
        ("size: [1, 2]\n", "FILE:1: size is a list; allowed: one value"),
        ("mode:\n  size: 3\n", "mode (FILE:2): needs a value, not a section; allowed: one of slow, quick, rapid"),
        ("- size\n", "FILE:1: the document is a list; allowed: keys with values"),
        ("just text\n", "FILE:1: the document is a single value; allowed: keys with values"),
        ("size: 1\n---\nsize: 2\n", "FILE:2: a second document"),
        ("size: !!python/object/apply:os.system ['touch canary']\n", "FILE:1: the tag"),
        ("!!python/object:os.system {size: 1}\n", "FILE:1: the tag"),
        ("notes: !!python/name:os.system x\n", "FILE:1: the tag"),
        ("size: !!int '3'\n", "the tag 'tag:yaml.org,2002:int' is not allowed"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "FILE:1: anchors and aliases are not allowed"),
        ("<<: *base\n", "FILE:1: anchors and aliases are not allowed"),
        ("? [a, b]\n: 3\n", "FILE:1: a key must be a name"),
        ("size: {{\n", "FILE:1: a key must be a name"),
        ("size: '3\n", "not valid YAML"),
        ("\tsize: 3\n", "FILE:1: not valid YAML"),
        ("size: 3\x00\n", "FILE: not valid YAML"),
        (b"\xff\xfe\x00\x01binary", "FILE: not UTF-8 text (byte 0)"),
        ("notes: " + "[" * 5000, "FILE:1: sections nested deeper than 8"),
        ("a: " + "{a: " * 5000, "FILE:1: sections nested deeper than 8"),
        ("notes: " + "x" * 1_000_000, "FILE: larger than a configuration can be; at most 1000000 bytes are read"),
        ("__class__: {__init__: 3}\n", "__init__ 3 (FILE:1): unknown setting"),
    ],
)
def test_a_wrong_file_is_told_in_one_line_with_its_name_and_line(file, content, message):
    path = file(content)
    told = refusal(config_file=path).replace(str(path), "FILE")
    assert message in told
    assert not path.with_name("canary").exists()


def test_a_file_that_is_not_there_or_not_a_file_is_told(tmp_path):
    assert "no such file" in refusal(config_file=tmp_path / "none.yaml")
    assert "is a folder; --config takes the path of a YAML file" in refusal(config_file=tmp_path)
    assert "no such file" in refusal(config_file="a\0b")
    assert "no such file" in refusal(config_file="")


def test_yaml_gives_back_an_equal_configuration_bit_for_bit():
    plain = toy(rate=0.1 + 0.2, bonus=-1e-300, limit=1e-5, switch=True, run_name="1e3", runs_dir="null", seed=2**62 + 1)
    odd = plain.replace(runs_dir="a: b # 'ä' \U0001f40d \"c\" ", wandb_project="yes", run_name="", limit=None)
    for config in (plain, odd):
        assert from_yaml(to_yaml(config), TOY) == config


def test_yaml_is_flat_in_the_order_of_declaration_and_others_read_the_same_values():
    config = toy(rate=1e-5, limit=None)
    values = yaml.safe_load(to_yaml(config))
    assert list(values) == list(TOY.schema.settings)
    assert values["rate"] == 1e-5
    assert values["limit"] is None
    assert values["switch"] is False
    assert "rate: 1.0e-05\n" in to_yaml(config)


def test_a_recorded_configuration_is_checked_like_any_other():
    with pytest.raises(UserError, match=r"size 0 \(config.yaml:1\)"):
        from_yaml("size: 0\n", TOY)


def test_ten_thousand_random_words_give_a_value_or_one_line():
    rng = random.Random(7)
    names = [*list(TOY.schema.settings), "lr", "no-switch", "a.__class__", "_target_", "policy", "", "ß", "n\n"]
    numbers = ["0", "1", "-1", "1e6", "1e30", "1e-999999999", "nan", "-inf", "1_0", "0x1", ".5", "5.", "9" * 5000]
    words = [
        "",
        "none",
        "true",
        "False",
        "fast",
        "amp",
        "bf16",
        "${env:HOME}",
        "!!python/name:os.system",
        "[1,2]",
        "\0",
    ]
    noise = "abcNaN_-=. \n\t\r\x00\x1b\u2028\udcff\u0663\U0001f40d'\"{}[]$%\\/:&*!0123456789"
    shapes = ["--{k}={v}", "{k}={v}", "--{k}|{v}", "--{k}", "{v}", "--no-{k}", "-{k}={v}"]
    good = bad = 0
    for _ in range(10_000):
        drawn = []
        for _ in range(rng.randint(1, 3)):
            random_text = "".join(rng.choices(noise, k=rng.randint(0, 12)))
            key = rng.choice([*names, random_text])
            drawn += rng.choice(shapes).format(k=key, v=rng.choice([*numbers, *words, random_text])).split("|")
        try:
            resolve(toy(), overrides=drawn)
            good += 1
        except UserError as error:
            bad += 1
            assert len(str(error).splitlines()) == 1, drawn
            assert len(str(error)) < 600, drawn
            assert str(error).isprintable(), drawn
    assert good > 100
    assert bad > 1000


def test_a_file_damaged_at_random_gives_values_or_one_line(file):
    rng = random.Random(11)
    whole = b"ppo:\n  rate: 3e-4\n  size: [1]\nnotes: |\n  text\nswitch: yes\na: &b {limit: *b}\n? x\n: !!int 3\n"
    noise = b"\n :-{}[]&*!|>'\"%@\t\0\xff#~ab1"
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 12)):
            start = rng.randrange(len(content))
            content[start : start + rng.randint(0, 9)] = bytes(rng.choices(noise, k=rng.randint(0, 3)))
            content = content or bytearray(b" ")
        try:
            read(config_file=file(bytes(content)))
        except UserError as error:
            assert len(str(error).splitlines()) == 1, content
            assert str(error).isprintable(), content


@pytest.mark.parametrize(
    "words", [["--algorithm", "ppo", "--seed", "3"], ["--algorithm=ppo"], ["algorithm=ppo"], ["--run.algorithm", "ppo"]]
)
def test_the_algorithm_is_known_before_other_settings_are_read(words):
    assert choices(words) == {"algorithm": "ppo"}


def test_flags_win_over_the_file_for_algorithm_and_network_too(file):
    path = file("algorithm: ddpg\nmodel:\n  network: lstm\nsize: 3\n")
    assert choices([], path) == {"algorithm": "ddpg", "network": "lstm"}
    assert choices(["--network", "mlp"], path) == {"algorithm": "ddpg", "network": "mlp"}
    assert choices_in("network: cnn") == {"network": "cnn"} and choices([]) == {}
