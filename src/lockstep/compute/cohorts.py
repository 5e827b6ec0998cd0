"""Rows of a rank divided into cohorts, each computed with the bits that it has alone. E: rows."""

from torch import Tensor

# In bytes; the largest that kernels look at.
_ALIGNMENT = 64


def cohorts_of(rows: Tensor, cohorts: int) -> list[Tensor]:
    """The rows (E, ...) of each cohort, in memory as if it were alone: kernels may be chosen by where data begins."""
    return [part if part.data_ptr() % _ALIGNMENT == 0 else part.clone() for part in rows.chunk(cohorts)]
