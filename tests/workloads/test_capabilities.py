"""What only some workloads can do: asked for by a small protocol, refused in one line that says who can."""

import inspect
from pathlib import Path

import pytest

from lockstep.errors import UserError
from lockstep.workloads import capabilities, registry

EXTENDING = Path(__file__).parents[2] / "docs" / "extending.md"
ALL = [
    kind for _, kind in inspect.getmembers(capabilities, inspect.isclass) if getattr(kind, "_is_runtime_protocol", 0)
]


def methods_of(kind):
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_page_lists_it_with_its_methods_and_somebody_has_it(kind):
    (row,) = [line for line in EXTENDING.read_text().splitlines() if line.startswith(f"| {kind.__name__}: ")]
    meaning, methods = (cell.strip() for cell in row.strip("|").split("|"))
    assert meaning.partition(": ")[2].lower() == kind.__doc__.rstrip(".").lower()
    assert sorted(methods.replace("`", "").split(", ")) == methods_of(kind)
    assert any(isinstance(registry.load(name), kind) for name in registry.names())


def test_a_workload_without_it_is_refused_with_those_that_have_it():
    with pytest.raises(UserError) as refused:
        registry.require(registry.load("snake"), capabilities.Contests)
    assert str(refused.value) == "snake: cannot play one team against another; workloads that can: snakes3v3"
    assert registry.require(registry.load("snakes3v3"), capabilities.Contests) is registry.load("snakes3v3")
