"""`lockstep eval` where a workload predicts: how good its predictions are, as a table, JSON and pictures."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.core.errors import UserError
from lockstep.verbs import model as models
from lockstep.verbs.model import TRAINED, Subject

if TYPE_CHECKING:
    from lockstep.verbs.evaluate import EvaluateOptions


def assessment(subject: Subject, policy: str, data: str, part: str, device: str) -> tuple[dict[str, Any], Any]:
    """What was measured, and the workload's own word about it."""
    about: dict[str, Any] = {"workload": subject.workload.name, "policy": policy}
    world, learner = models.place_of(subject, device), None
    if policy == TRAINED:
        model = models.load(subject, device)
        world, learner = model.world, model.learner
        about |= {"model": str(subject.path), "step": model.step}
    found = subject.workload.offer("assess")(subject.config, policy, learner, data, part, world)
    return about | found.summary(), found


def show(results: dict[str, Any], found: Any, options: "EvaluateOptions") -> None:
    """Print the results."""
    if options.json:
        print(json.dumps(results, indent=1))
        return
    trained = f" for {results['step']:,} steps ({results['model']})" if results.get("step") is not None else ""
    print(f"{results['workload']}, {results['policy']}{trained}, on {results['measured_on']}:", found.table())


def draw(found: Any, subject: Subject, options: "EvaluateOptions") -> None:
    """Write the pictures beside the JSON; where that cannot be, say why and go on."""
    if not options.plots or (not options.output and (subject.run is None or options.policy != TRAINED)):
        return
    folder = Path(options.output).parent if options.output or subject.run is None else subject.run.path
    try:
        drawn = found.draw(folder)
    except (UserError, OSError) as error:
        print(f"no plots: {error}", file=sys.stderr)
        return
    # With --json the output is for programs.
    print(f"plots: {', '.join(map(str, drawn))}", file=sys.stderr if options.json else sys.stdout)
