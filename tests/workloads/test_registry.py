import subprocess
import sys

import pytest

from lockstep.errors import UserError
from lockstep.workloads import registry


def test_workloads_are_the_folders_that_hold_a_workload():
    assert "snake" in registry.names()
    assert registry.names() == sorted(registry.names())
    assert "registry" not in registry.names()


@pytest.mark.parametrize("name", registry.names())
def test_every_workload_has_presets_debug_and_base_with_settings_of_its_own(name):
    workload = registry.load(name)
    assert workload.name == name
    assert workload.summary
    assert callable(workload.build)
    assert {"debug", "base"} <= set(workload.presets)
    for preset in workload.presets:
        config = workload.preset(preset)
        assert isinstance(config.workload, workload.settings)
        assert config.run.algorithm in workload.algorithms and workload.presets[preset].summary.endswith(".")


def test_base_is_the_preset_when_none_is_named():
    snake = registry.load("snake")
    assert snake.preset() == snake.preset("base")


@pytest.mark.parametrize("name", ["snak", "Snake", "../snake", "os", "snake.workload", "registry", "", "a\nb"])
def test_an_unknown_workload_is_told_with_what_there_is(name):
    with pytest.raises(UserError, match=r"unknown workload.*known: .*snake") as caught:
        registry.load(name)
    assert len(str(caught.value).splitlines()) == 1


def test_the_nearest_name_is_offered():
    with pytest.raises(UserError, match="snak: unknown workload; the nearest is snake"):
        registry.load("snak")
    with pytest.raises(UserError, match="smal: unknown preset of snake; the nearest is small"):
        registry.load("snake").preset("smal")


def test_presets_are_named_with_dashes_or_underscores():
    snake = registry.load("snake")
    assert snake.preset("high-entropy") == snake.preset("high_entropy")


def test_reading_and_refusing_input_needs_no_torch():
    code = """
from lockstep.config.sources import resolve, to_yaml
from lockstep.errors import UserError
from lockstep.workloads import registry
for name in registry.names():
    workload = registry.load(name)
    for preset in workload.presets:
        config = workload.preset(preset)
        assert workload.read_config(to_yaml(config)) == config
        config.layout.schema.described()
    try:
        resolve(config, overrides=["--no-such-thing", "3"])
        raise SystemExit("accepted")
    except UserError:
        pass
import sys
print([heavy for heavy in ("torch", "safetensors", "pandas") if heavy in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")
