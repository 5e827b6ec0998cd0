"""The names of the tasks, and the messages for unknown tasks and missing packages."""

import importlib.util
import subprocess
import sys

import pytest

from lockstep.errors import UserError
from lockstep.workloads.control import names


def refusal(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_there_are_28_standard_and_11_custom_tasks_of_deepmind_control():
    assert (len(names.STANDARD), len(names.CUSTOM), len(names.SUITE)) == (28, 11, 39)


def test_mt30_is_19_standard_and_the_11_custom_tasks_and_mt80_adds_meta_world_s_50():
    mt30, mt80 = names.tasks_of("mt30"), names.tasks_of("mt80")
    assert len(mt30) == len(set(mt30)) == 30
    assert sum(task in names.STANDARD for task in mt30) == 19
    assert not [task for task in mt30 if task.startswith(("dog", "humanoid", "quadruped"))]
    assert mt30[0] == "walker-stand" and mt30[29] == "pendulum-spin"
    assert mt80[:30] == mt30 and len(set(mt80)) == 80 and mt80[30] == "mw-assembly"


@pytest.mark.parametrize("name", ["dog-run", "cup-spin", "mw-reach", "bipedal-walker", "Pendulum-v1", "ns/Thing.x-v12"])
def test_a_task_is_a_set_of_one(name):
    assert names.tasks_of(name) == (name,)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("dog-runn", "dog-run"), ("walker_walk", "walker-walk"), ("walkr-walk", "walker-walk"), ("mt31", "mt30")],
)
def test_an_unknown_task_is_refused_in_one_line_with_the_nearest_names(name, meant):
    assert f"{meant}" in refusal(names.tasks_of, name)


@pytest.mark.parametrize("name", ["dog-run", "cup-spin", "mw-reach", *names.TASK_SETS])
def test_only_gymnasium_tasks_have_a_gymnasium_id(name):
    assert names.gymnasium_id(name) == ""
    assert names.gymnasium_id("Pendulum-v1") == "Pendulum-v1"
    assert names.gymnasium_id("mujoco-walker") == "Walker2d-v5"


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\nb", "../dog-run", "-"])
def test_nonsense_is_refused_in_one_short_line(name):
    assert len(refusal(names.tasks_of, name)) < 300


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    assert "pip install 'lockstep-train[control]'" in refusal(names.check_installed, "dog-run")
    assert "needs metaworld; pip install 'lockstep-train[metaworld]'" in refusal(names.check_installed, "mw-reach")
    names.check_installed("Pendulum-v1")


def test_mt80_without_metaworld_is_refused():
    if importlib.util.find_spec("metaworld"):
        pytest.skip("metaworld is installed")
    assert "mw-assembly needs metaworld" in refusal(names.check_installed, "mt80")


def test_names_need_neither_torch_nor_a_simulator():
    code = (
        "import sys; from lockstep.workloads.control import names; names.check_installed('dog-run');"
        "print([heavy for heavy in ('torch', 'dm_control', 'mujoco', 'numpy') if heavy in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.argv = ['lockstep']; {code}"], capture_output=True)
    assert done.stdout == b"[]\n", done.stderr
