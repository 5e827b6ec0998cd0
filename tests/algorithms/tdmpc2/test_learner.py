"""The learner: how it acts, how often it learns, and that neither depends on the number of ranks."""

import importlib.util
from pathlib import Path

import pytest
import torch

from lockstep.algorithms.tdmpc2.planning.evaluator import TaskEvaluation
from lockstep.config.run_settings import RunSettings
from lockstep.errors import RunFailed, UserError
from lockstep.run import arithmetic
from lockstep.storage.checkpoint import weights_hash

MINE = str(Path(__file__).parent / "conftest.py")


def learner_in(world, **changes):
    """A learner of the small task on a rank of the pool, where fixtures are not available."""
    spec = importlib.util.spec_from_file_location("tdmpc2_point", MINE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._learner(world, **changes)


def numbers(report, *names):
    return [round(report[f"train/{name}"].mean, 6) for name in names]


def test_random_actions_come_first_then_plans_and_the_update_ratio_is_kept_and_logged(make_learner):
    learner = make_learner(seed_steps=120, pretrain_updates=5, updates_per_step=0.25)
    logged = [numbers(learner.step()[0], "gradient_updates", "updates_per_step") for _ in range(3)]
    # Steps 120, 128, ... 152 of the second round: five updates and two for each further eight steps; then 20 a round.
    assert logged == [[0, 0.0], [5 + 2 * 4, 13 / 80], [20, 0.25]]
    assert learner.gradient_updates == 33 and learner.steps == 240
    (env,) = learner.made
    actions = torch.stack(env.actions)
    # Uniform actions have a mean square of a third; until the first update is done they are random.
    assert abs(float(actions[:16].square().mean()) - 1 / 3) < 0.06
    assert len({round(float(a), 5) for a in actions.flatten()}) > 400


def test_steps_and_updates_do_not_depend_on_the_lanes(make_learner):
    fast, exact = make_learner(mpc=False), make_learner(mpc=False, sync="exact")
    for learner in (fast, exact):
        learner.step(), learner.step()
    assert (fast.steps, fast.gradient_updates) == (exact.steps, exact.gradient_updates) == (160, 13)
    assert len(exact.made) == 8 and torch.allclose(
        torch.stack(fast.made[0].actions)[:12], torch.cat([torch.stack(env.actions) for env in exact.made], 1)[:12]
    )


@pytest.mark.slow
def test_it_learns_to_stay_near_the_origin(make_learner):
    learner = make_learner(
        steps=80 * 14, updates_per_step=0.5, pretrain_updates=60, lr=3e-3, tau=0.05, dropout=0.0, seed_steps=240
    )
    before = learner.evaluate(16, seed=3).score()
    while not learner.done():
        learner.step()
    assert learner.evaluate(16, seed=3).score() > before + 2.0


def test_an_evaluation_is_the_same_when_it_is_repeated_and_leaves_training_alone(make_learner):
    one, other = (make_learner(n_steps=4, seed_steps=32) for _ in range(2))
    for learner in (one, other):
        learner.step(), learner.step()
    first = one.evaluate(3, seed=7)
    assert first.returns == one.evaluate(3, seed=7).returns and first.lengths == [20] * 3
    assert first.returns != one.evaluate(3, seed=8).returns
    one.step(), other.step()
    assert weights_hash(one.model.state_dict()) == weights_hash(other.model.state_dict())


def test_a_plan_is_forgotten_when_its_episode_ends(make_learner):
    learner = make_learner(n_steps=5, seed_steps=40)
    for _ in range(3):
        learner.step()
    (collector,) = learner._collectors
    assert bool((collector._actor.state() != 0).any(-1).any(-1).all())
    learner.step()
    assert learner.made[0].age.tolist() == [0] * 8
    assert not bool(collector._actor.state().any())


@pytest.mark.parametrize("changes", [{"mpc": False}, {"ends": True}, {"tasks": 2, "task_dim": 4}, {"dropout": 0.0}])
def test_a_resumed_run_continues_bitwise_identically(make_learner, changes):
    changes = {**changes, "n_steps": 5, "seed_steps": 40}
    undisturbed = make_learner(**changes)
    for _ in range(2):
        undisturbed.step()
    snapshot = undisturbed.state()
    kept = {lane: {name: value.clone() for name, value in part.items()} for lane, part in snapshot.lanes.items()}
    for part in (snapshot.model, snapshot.optimizer):
        part.update({name: value.clone() for name, value in part.items()})
    snapshot.lanes = kept
    undisturbed.step()
    resumed = make_learner(**changes)
    resumed.load(snapshot)
    assert resumed.steps == 80 and resumed.gradient_updates == 8
    resumed.step()
    assert weights_hash(resumed.model.state_dict()) == weights_hash(undisturbed.model.state_dict())


def test_episode_lengths_stay_correct_after_a_resume_with_another_n_steps(make_learner):
    before = make_learner(n_steps=10)
    before.step()
    after = make_learner(n_steps=7)
    after.load(before.state())
    lengths = [report["rollout/length_mean"] for _ in range(6) for report in after.step()]
    assert {length.minimum for length in lengths if length.count} == {20.0}
    assert {length.maximum for length in lengths if length.count} == {20.0}


def test_a_resume_may_change_the_horizon_but_not_the_number_of_environments(make_learner):
    before = make_learner(seed_steps=40)
    before.step()
    assert bool(before.state().lanes[0]["plan"].any())
    for changes in ({"horizon": 2}, {"mpc": False}):
        after = make_learner(seed_steps=40, **changes)
        after.load(before.state())
        assert not bool(after.state().lanes[0]["plan"].any()), "plans of another shape must be discarded"
        after.step()
    with pytest.raises(UserError, match="the checkpoint has 8 environments where this run would have 16"):
        make_learner(num_envs=16, seed_steps=48).load(before.state())


def test_components_that_a_task_does_not_have_are_zero_in_random_actions_too(make_learner):
    learner = make_learner(tasks=2, actions=(2, 1))
    for _ in range(2):
        learner.step()
    actions = torch.stack(learner.made[0].actions)
    assert len(actions) == 20 and bool((actions[:, ::2] != 0).all())
    assert bool((actions[:, 1::2, 0] != 0).all()) and bool((actions[:, 1::2, 1] == 0).all())


def test_several_tasks_are_all_evaluated(make_learner):
    evaluation = make_learner(tasks=2, task_dim=4).evaluate(2, seed=0)
    assert len(evaluation.returns) == 4


def test_the_mean_return_of_each_task_is_logged_by_its_name():
    tasks = [0.0, 1.0, 1.0]
    found = TaskEvaluation([10.0, 2.0, 4.0], [5, 5, 5], 1, {"pole_task": tasks}, ("up", "down"), "pole_task")
    assert found.numbers() == {
        "return_mean": pytest.approx(16 / 3),
        "length_mean": 5.0,
        "up_return_mean": 10.0,
        "down_return_mean": 3.0,
    }


def test_a_warm_start_keeps_its_weights_until_it_learns(make_learner):
    source, learner = make_learner(seed=5), make_learner()
    learner.begin_with(source.model.state_dict())
    learner.step()
    assert weights_hash(learner.model.state_dict()) == weights_hash(source.model.state_dict())


def test_a_non_finite_gradient_is_skipped_or_stops_the_run(make_learner):
    for policy in ("skip", "stop"):
        learner = make_learner(nonfinite=policy, seed_steps=24)
        next(learner.model.parameters()).register_hook(lambda gradient: gradient * float("nan"))
        if policy == "stop":
            with pytest.raises(RunFailed, match="were not finite"):
                learner.step()
        else:
            report = learner.step()[0]
            assert numbers(report, "skipped_updates") == [learner.gradient_updates]


def test_a_horizon_that_no_episode_reaches_is_refused(make_learner):
    learner = make_learner(horizon=21, seed_steps=168)
    with pytest.raises(RunFailed, match="no episode of 21 steps"):
        for _ in range(4):
            learner.step()


def test_sync_freq_averages_the_gradients_of_several_updates(make_learner):
    single, double = make_learner(batch_size=32), make_learner(batch_size=32, sync_freq=2)
    for learner in (single, double):
        learner.step()
    gradients = []
    for number in (6, 7):
        single._training._number.fill_(number)
        single._training._filled()
        single._training.world_replica.backward(single._training._batches)
        gradients.append({name: p.grad.clone() for name, p in single.model.world.named_parameters()})
    double._training._number.fill_(6)
    double._training._filled()
    double._training.world_replica.backward(double._training._batches)
    for name, parameter in double.model.world.named_parameters():
        torch.testing.assert_close(parameter.grad, (gradients[0][name] + gradients[1][name]) / 2)


def test_updates_are_applied_in_whole_groups(make_learner):
    learner = make_learner(sync_freq=4, pretrain_updates=6)
    learner.step()
    report = learner.step()[0]
    # 6 updates are due at first and one more after each step: 6, 7, ... 15. Whole groups of four are applied.
    assert learner.gradient_updates == 12 and numbers(report, "gradient_updates") == [12]


def train_and_compare(world, changes, rounds):
    """Train, checking after every optimiser step that all ranks hold the same weights. Called by every rank."""
    learner = learner_in(world, **changes)
    steps, training = [], learner._training
    once = training._step

    def step():
        once()
        fingerprint = weights_hash(learner.model.state_dict())
        world.check_replicas(fingerprint, f"step {len(steps)}")
        steps.append(fingerprint)

    training._step = step
    for _ in range(rounds):
        learner.step()
    weights = {name: value.tolist() for name, value in learner.model.state_dict().items()}
    return {"steps": steps, "scale": float(learner.model.value_scale), "weights": weights}


@pytest.mark.parametrize("sync", ["fast", "exact"])
def test_replicas_are_equal_after_every_optimiser_step_with_accumulated_gradients(ranks, sync):
    changes = {"sync": sync, "sync_freq": 3, "lanes": 4, "seed_steps": 24, "pretrain_updates": 6, "mpc": False}
    (one,) = ranks.run(train_and_compare, changes, 1, ranks=1)
    two = ranks.run(train_and_compare, changes, 1, ranks=2)
    assert two[0]["steps"] == two[1]["steps"] and len(one["steps"]) == 4
    if sync == "exact":
        assert two[0]["steps"] == one["steps"]
    for name, value in one["weights"].items():
        torch.testing.assert_close(torch.tensor(two[0]["weights"][name]), torch.tensor(value), rtol=1e-4, atol=1e-6)


def train_with_terminations(world, changes, rounds):
    """The hash of the weights, and how many episodes ended early. Called by every rank."""
    learner = learner_in(world, ends=True, **changes)
    for _ in range(rounds):
        learner.step()
    ended = [int(c.memory.state(learner.steps // 8)["terminated"].sum()) for c in learner._collectors]
    return weights_hash(learner.model.state_dict()), sum(ended)


@pytest.mark.slow
def test_many_environments_terminate_at_different_times_on_any_number_of_ranks(ranks):
    changes = {"sync": "exact", "seed_steps": 160, "pretrain_updates": 2, "mpc": True, "threads": 1}
    ((one, ended),) = ranks.run(train_with_terminations, changes, 5, ranks=1)
    two = ranks.run(train_with_terminations, changes, 5, ranks=2)
    assert [found for found, _ in two] == [one, one]
    assert ended == sum(count for _, count in two) > 2


def scale_after(world, changes):
    """The value scale after some updates with widely spread values. Called by every rank."""
    # Other tests use some of these ranks and leave other settings of torch behind.
    with arithmetic.restored():
        return _scale(world, changes)


def _scale(world, changes):
    arithmetic.fix(RunSettings(threads=1), world)
    learner = learner_in(world, **changes)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        learner.model.world.values[-1].weight.normal_(generator=generator).mul_(3.0)
    learner.step()
    return float(learner.model.value_scale)


def test_the_value_scale_is_computed_over_all_ranks(ranks):
    changes = {"seed_steps": 48, "mpc": False, "tau": 0.5, "lanes": 4}
    (one,) = ranks.run(scale_after, changes, ranks=1)
    two, three = ranks.run(scale_after, changes, ranks=2), ranks.run(scale_after, changes, ranks=3)
    assert one > 1.5 and len({*two}) == len({*three}) == 1
    assert two[0] == pytest.approx(one, rel=1e-4) and three[0] == pytest.approx(one, rel=1e-4)
    exact = [ranks.run(scale_after, {**changes, "sync": "exact"}, ranks=size)[0] for size in (1, 3)]
    assert exact[0] == exact[1]
