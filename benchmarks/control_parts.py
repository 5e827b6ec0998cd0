"""Where the time of TD-MPC2 goes: seconds to the first trained step, then updates, plans and steps per second.

python benchmarks/control_parts.py [--preset base] [--calls 300] [--kernels] [field=value]...
    one environment, one update a step:  task=walker-walk model_size=5
    sixteen, a quarter update a step:    task=walker-walk num_envs=16 updates_per_step=0.25
`--kernels` also lists what the device spends its time on in an update and in a plan.
"""

import argparse
import time

START = time.perf_counter()

import torch  # noqa: E402 - the start of the program counts

from lockstep.distributed.world import World, choose_device  # noqa: E402
from lockstep.run import arithmetic  # noqa: E402
from lockstep.workloads import registry  # noqa: E402


def per_second(call, calls, finish):
    """Calls a second, the best of three measurements."""
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        for number in range(calls):
            call(number)
        finish()
        best = max(best, calls / (time.perf_counter() - start))
    return best


def kernels(call, finish, rows=25):
    """A table of the device's kernels in ten calls."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with profile(activities=activities) as seen:
        for number in range(10):
            call(number)
        finish()
    by = "cuda_time_total" if torch.cuda.is_available() else "cpu_time_total"
    events = [event for event in seen.events() if event.device_type.name == "CUDA"]
    print(f"    {len(events) / 10:.0f} kernels a call, {sum(e.device_time for e in events) / 10:,.0f} us of the device")
    print(seen.key_averages().table(sort_by=by, row_limit=rows, max_name_column_width=90))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--kernels", action="store_true")
    args, words = parser.parse_known_args()
    workload = registry.load("control")
    config = workload.resolve(args.preset, overrides=words).config
    settings = config.algorithm
    world = World(device=choose_device(config.run.device, 0))
    world = world.with_lanes(config.effective_lanes, config.sync_on(world.device.type))
    finish = torch.cuda.synchronize if world.device.type == "cuda" else (lambda: None)
    arithmetic.fix(config.run, world)
    learner = workload.build(config, world)
    print(f"{config.workload.task}, {learner.model.trained_parameters():,} parameters,", end=" ")
    print(f"{settings.num_envs} environment(s), {settings.updates_per_step:g} update(s) a step,", end=" ")
    print(f"{world.device}; ready after {time.perf_counter() - START:.1f} s")
    while not learner.gradient_updates:
        before = time.perf_counter()
        learner.step()
    finish()
    print(f"first trained round after {time.perf_counter() - START:.1f} s, of which it took", end=" ")
    print(f"{time.perf_counter() - before:.1f} s with {learner.gradient_updates:,} updates in it")
    for _ in range(2):
        learner.step()
    learner.timings()
    before, steps = time.perf_counter(), learner.steps
    while learner.steps - steps < args.calls * settings.num_envs:
        learner.step()
    finish()
    seconds = time.perf_counter() - before
    print(f"agent steps/s          {(learner.steps - steps) / seconds:10,.1f}   (rounds of {settings.n_steps} steps)")
    split = {part: spent / seconds for part, spent in learner.timings().items()}
    print("    of the host's time:", ", ".join(f"{part} {share:.0%}" for part, share in split.items()))
    training, actor, env = learner._training, learner._collectors[0]._actor, learner._collectors[0]._env

    def update(_):
        training.step()

    def plan(number):
        actor.decide(number)
        actor.action()

    action = actor.action().clone()
    print(f"updates/s              {per_second(update, args.calls, finish):10,.1f}")
    print(f"plans/s                {per_second(plan, args.calls, finish) * env.count:10,.1f}   ({env.count} at once)")
    print(f"environment steps/s    {per_second(lambda _: env.step(action), args.calls, finish) * env.count:10,.1f}")
    if args.kernels:
        for name, call in (("update", update), ("plan", plan)):
            print(f"\n{name}:")
            kernels(call, finish)


if __name__ == "__main__":
    main()
