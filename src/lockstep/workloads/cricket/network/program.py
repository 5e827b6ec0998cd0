"""A trained network as a function of tensors, for programs that do not have Lockstep."""

import torch
from torch import Tensor, nn

from lockstep.errors import UserError
from lockstep.run.learner import Learner
from lockstep.storage.program_file import Program
from lockstep.workloads.cricket.columns import BALL_FEATURES, CAREER_WIDTH, ENTITIES, STATE_WIDTH
from lockstep.workloads.cricket.data.samples import Samples

_NOTE = "features in the order of workloads/cricket/columns.py; `lockstep predict` computes them from matches"


class _Outcomes(nn.Module):
    """Features of balls -> probabilities of their outcomes (B, 7)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, state: Tensor, career: Tensor, ids: Tensor, roles: Tensor, innings: Tensor, phase: Tensor
    ) -> tuple[Tensor]:
        # The network has no use for who bowled earlier balls, so that part of its input is empty.
        people, none = ids[:, 3:], ids[:, :0]
        balls = state[:, :0, None].expand(-1, -1, len(BALL_FEATURES))
        samples = Samples(
            state=state,
            career=career,
            ids=ids,
            roles=roles,
            innings=innings,
            phase=phase,
            people=people,
            present=none > 0,
            ball=balls,
            ball_ids=none[..., None].expand(-1, -1, 3),
            ball_people=none[..., None].expand(-1, -1, 3),
            over=none,
            ball_in_over=none,
        )
        return (self.model(samples)[0].exp(),)


def outcome_program(learner: Learner, reads_balls: bool) -> Program:
    """The network of a trained learner; UserError if it reads earlier balls."""
    if reads_balls:
        raise UserError(
            "export: this network reads every earlier ball of an innings, a graph that grows with it; use --format "
            "safetensors, or train with --drop-relations ball, as the presets small and base do"
        )
    inputs = {
        "state": torch.zeros(2, STATE_WIDTH),
        "career": torch.zeros(2, CAREER_WIDTH),
        "ids": torch.zeros(2, len(ENTITIES), dtype=torch.int64),
        "roles": torch.zeros(2, 3, dtype=torch.int64),
        "innings": torch.zeros(2, dtype=torch.int64),
        "phase": torch.zeros(2, dtype=torch.int64),
    }
    return Program(_Outcomes(learner.model).eval(), inputs, ("probabilities",), _NOTE)
