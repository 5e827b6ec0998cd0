"""Maps a task's name to its simulator. Needs no torch, so that worker processes start quickly."""

from lockstep.envs.simulation import Simulation
from lockstep.workloads.control import names


def open_simulation(name: str, pictures: bool = False) -> Simulation:
    """Create the simulation of a task; with `pictures`, one that can `render`.

    `name`: the task's, or RENDERER@TASK for one that is observed as images.
    """
    renderer, _, task = name.rpartition("@")
    if renderer:
        from lockstep.workloads.control.pixels import PixelSimulation

        return PixelSimulation(task, renderer)
    # Each package is imported only for its own tasks: they are slow to import, and optional.
    if task in names.SUITE:
        from lockstep.workloads.control.suite import SuiteSimulation

        return SuiteSimulation(task)
    if task in names.MT50:
        from lockstep.workloads.control.metaworld_tasks import MetaWorldSimulation

        return MetaWorldSimulation(task)
    from lockstep.workloads.control.gymnasium_tasks import GymnasiumSimulation

    return GymnasiumSimulation(task, pictures)
