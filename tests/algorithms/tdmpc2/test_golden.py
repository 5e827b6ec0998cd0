"""With the same weights, batch and random draws, every number equals the official program's."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lockstep.algorithms.tdmpc2.model.discrete import Bins, symexp, symlog
from lockstep.algorithms.tdmpc2.model.layers import run
from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces, TDMPC2Model, joined
from lockstep.algorithms.tdmpc2.model.official import converted
from lockstep.algorithms.tdmpc2.planning.planner import Planner, PlanNoise
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.training.losses import Batch, PolicyLoss, WorldLoss
from lockstep.algorithms.tdmpc2.training.value_scale import follow_spread
from lockstep.compute.optimizer import Optimizer
from lockstep.rl.target_networks import follow
from lockstep.storage.foreign_weights import read_state_dict

DATA = Path(__file__).parents[4] / "shared" / "data" / "control"
TOLERANCE = 1e-5
USED = (
    *("consistency_coef", "reward_coef", "value_coef", "termination_coef", "rho", "entropy_coef"),
    *("horizon", "iterations", "num_samples", "num_elites", "num_pi_trajs"),
)
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"needs the golden numbers in {DATA}")


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


class Case:
    """One of the official program's recorded cases: its tensors by name, its configuration and its metrics."""

    def __init__(self, name):
        self.tensors = {
            key.removeprefix(f"{name}/"): value
            for key, value in load_file(DATA / "golden.safetensors").items()
            if key.startswith(f"{name}/")
        }
        facts = json.loads((DATA / "golden.json").read_text())
        self.config, self.metrics = facts.get(f"{name}/config"), facts.get(f"{name}/update_metrics")

    def under(self, folder):
        return {key.removeprefix(f"{folder}/"): v for key, v in self.tensors.items() if key.startswith(f"{folder}/")}

    def draws(self, folder):
        return [value for key, value in sorted(self.under(folder).items()) if key.startswith("draw_")]

    def model(self, folder):
        """The model, its weights read from a checkpoint as the official program writes it."""
        c = self.config
        sizes = Sizes(c["enc_dim"], c["num_enc_layers"], c["mlp_dim"], c["latent_dim"], c["num_q"])
        spaces = Spaces(*c["obs_shape"]["state"], (c["action_dim"],), (c["episode_length"],), c["episodic"])
        model = TDMPC2Model(sizes, spaces, seed=0)
        torch.save({"model": self.under("weights_before")}, folder / "official.pt")
        weights = converted(read_state_dict(folder / "official.pt"))
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert missing == ["value_scale"] and not unexpected
        return model

    @property
    def discount(self):
        fraction = self.config["episode_length"] / self.config["discount_denom"]
        return min(max((fraction - 1) / fraction, self.config["discount_min"]), self.config["discount_max"])

    @property
    def settings(self):
        """The settings that losses and planner read, as the official program had them."""
        return TDMPC2Settings(**{name: self.config[name] for name in USED})

    def batch(self):
        target_noise, target_pair, policy_noise, policy_pair = self.draws("update")
        batch = self.under("batch")
        samples = batch["obs"].shape[1]
        return Batch(
            batch["obs"],
            batch["action"],
            batch["reward"].squeeze(-1),
            batch["terminated"].squeeze(-1),
            task=None,
            target_noise=target_noise,
            policy_noise=policy_noise,
            target_pair=target_pair[:2],
            policy_pair=policy_pair[:2],
            values_kept=None,
            policy_kept=None,
            latents=torch.zeros(*batch["obs"].shape[:2], self.config["latent_dim"]),
            share=1.0 / samples,
            first=0,
        )


@pytest.fixture(params=["walker", "cartpole", "episodic"])
def case(request):
    return Case(request.param)


def test_two_hot_bins_and_their_cross_entropy():
    case, bins = Case("math"), Bins()
    x = case.tensors["x"].squeeze(-1)
    close(symlog(x), case.tensors["symlog"].squeeze(-1))
    close(symexp(symlog(x)), case.tensors["symexp_of_symlog"].squeeze(-1))
    close(bins.spread(x), case.tensors["two_hot"])
    logits = case.tensors["logits"]
    close(bins.expected(logits), case.tensors["two_hot_inv"].squeeze(-1))
    close(bins.cross_entropy(logits, x[3:8]), case.tensors["soft_ce"].squeeze(-1))


def test_networks_compute_the_same_outputs(case, tmp_path):
    model, expected = case.model(tmp_path), case.under("forward")
    batch = case.batch()
    with torch.no_grad():
        latent = model.world.encode(batch.observation[0], None)
        close(latent, expected["z"])
        close(model.world.next(latent, batch.action[0], None), expected["next_z"])
        reward = model.world.reward_logits(latent, batch.action[0], None)
        close(reward, expected["reward_logits"])
        close(model.bins.expected(reward).unsqueeze(-1), expected["reward"])
        inputs = joined(latent, batch.action[0])
        close(model.world.values(inputs), expected["q_logits_all"])
        close(model.target(inputs), expected["q_target_logits_all"])
        pair = torch.tensor([3, 1])
        close(run(model.world.values.stack(pair), inputs), expected["q_logits_all"][pair])
        if model.world.termination is not None:
            ends = torch.sigmoid(model.world.termination_logit(latent, None))
            close(ends.unsqueeze(-1), expected["termination"])


def test_one_update_gives_the_same_weights_and_metrics(case, tmp_path):
    model, batch, c = case.model(tmp_path), case.batch(), case.config
    world_loss, policy_loss = WorldLoss(model, case.settings, case.discount), PolicyLoss(model, case.settings)
    named = dict(model.world.named_parameters())
    world = Optimizer(named, 1e-8, c["grad_clip_norm"], scales={"encoder.": c["enc_lr_scale"]})
    policy = Optimizer(dict(model.policy.named_parameters()), 1e-5, c["grad_clip_norm"])
    for optimizer in (world, policy):
        optimizer.set_rate(c["lr"])

    loss, metrics = world_loss(batch)
    loss.backward()
    metrics["grad_norm"], _ = world.step()
    follow_spread(model.value_scale, policy_loss.first_values(batch), c["tau"])
    loss, found = policy_loss(batch)
    loss.backward()
    metrics["pi_grad_norm"], _ = policy.step()
    follow(model.target, model.world.values, c["tau"])
    metrics |= found | {"pi_scale": model.value_scale}

    if "termination_f1" in case.metrics:
        hits, all_of_both = metrics.pop("termination_foretold_rightly"), metrics.pop("termination_foretold")
        metrics["termination_f1"] = 2 * hits / (all_of_both + metrics["termination_rate"])
    else:
        metrics["termination_loss"] = 0.0
    assert metrics.keys() == case.metrics.keys()
    for name, value in metrics.items():
        assert math.isclose(float(value), case.metrics[name], rel_tol=TOLERANCE, abs_tol=TOLERANCE), name
    for name, value in converted(case.under("weights_after")).items():
        close(model.state_dict()[name], value)


def plan_noise(case):
    settings = case.settings
    draws = [value.unsqueeze(0) for value in case.draws("plan")]
    prior, draws = draws[: settings.horizon], draws[settings.horizon :]
    loop, (gumbel, final) = draws[: 3 * settings.iterations], draws[3 * settings.iterations :]
    return PlanNoise(
        prior=torch.stack(prior, 1),
        actions=torch.stack(loop[0::3], 1),
        ends=torch.stack(loop[1::3], 1),
        pairs=torch.cat(loop[2::3])[:, :2],
        gumbel=gumbel,
        final=final,
    )


def test_a_plan_gives_the_same_action(case, tmp_path):
    plan = case.under("plan")
    planner = Planner(case.model(tmp_path), case.settings, case.discount)
    noise = plan_noise(case)
    action, mean = planner.plan(plan["obs"], plan["prev_mean_before"].unsqueeze(0), noise, None, explores=True)
    close(action[0], plan["action"])
    close(mean[0], plan["prev_mean_after"])


def test_planning_for_several_environments_equals_planning_for_each(case, tmp_path):
    plan = case.under("plan")
    planner = Planner(case.model(tmp_path), case.settings, case.discount)
    noise = plan_noise(case)
    twice = PlanNoise(**{k: v if k == "pairs" else torch.cat((v.flip(1), v)) for k, v in vars(noise).items()})
    observation = torch.cat((plan["obs"] + 1.0, plan["obs"]))
    previous = torch.stack((plan["prev_mean_before"] * 0, plan["prev_mean_before"]))
    action, mean = planner.plan(observation, previous, twice, None, explores=True)
    close(action[1], plan["action"])
    close(mean[1], plan["prev_mean_after"])
    assert not torch.allclose(action[0], action[1], atol=1e-3)
