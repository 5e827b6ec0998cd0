"""`lockstep doctor`: checks this machine; one line for each finding, with what to do about problems."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from lockstep.cli import argv as command
from lockstep.config.fields import Range
from lockstep.diagnostics.finding import Finding, bad, ok, warn
from lockstep.output import counted, show

_SIGNS = {"ok": "ok  ", "warn": "WARN", "bad": "BAD "}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What to check."""

    runs_dir: str = "runs"
    """Folder that runs will be written to."""
    ranks: Annotated[int, Range(at_least=0, at_most=64)] = 2
    """Ranks of the trial all-reduce; 0 leaves it out."""
    json: bool = False
    """Print JSON."""


def doctor(arguments: list[str]) -> int:
    """The verb `doctor`: returns 0 if a run would work, 3 if it would not."""
    usage = "lockstep doctor [--runs-dir DIR] [--ranks N] [--json]"
    command.offer_help(arguments, lambda _: command.help_text(usage, DoctorOptions))
    options = command.take_all(arguments, DoctorOptions())
    findings: list[Finding] = []
    for check in _checks(options):
        for finding in check():
            findings.append(finding)
            if not options.json:
                show(line(finding))
    wrong = [finding for finding in findings if finding.verdict == "bad"]
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        show(_summary(findings))
    return 3 if wrong else 0


def line(finding: Finding) -> str:
    """A finding as one printed line."""
    cure = f"; {finding.fix}" if finding.fix else ""
    return f"{_SIGNS[finding.verdict]} {finding.subject:14} {finding.what}{cure}"


def _checks(options: DoctorOptions) -> list[Callable[[], list[Finding]]]:
    # torch takes seconds to import, so each check imports what it needs: the first lines appear at once.
    from lockstep.diagnostics.folder import look_at_folder
    from lockstep.diagnostics.host import look_at_host

    def devices() -> list[Finding]:
        from lockstep.diagnostics.devices import look_at_devices

        return look_at_devices()

    def network() -> list[Finding]:
        from lockstep.diagnostics.network import look_at_network
        from lockstep.distributed.nccl import detect

        return look_at_network(detect())

    def host() -> list[Finding]:
        import torch

        return look_at_host(torch.cuda.device_count())

    checks = [lambda: look_at_folder(Path(options.runs_dir)), devices, host, network]
    return [*checks, lambda: _all_reduce(options.ranks)] if options.ranks else checks


def _all_reduce(ranks: int) -> list[Finding]:
    """Start ranks and time an all-reduce between them."""
    from lockstep.distributed.pool import RankPool
    from lockstep.errors import LockstepError

    subject, pool = "all-reduce", _pool(ranks)
    size = 64 if pool[1] == "cuda" else 16  # MB of gradient
    try:
        with RankPool(ranks, device=pool[1]) as live:
            found = live.run("lockstep.distributed.bandwidth:all_reduce_speed", size)[0]
    except LockstepError as error:
        fix = "see the lines above for possible causes; TORCH_DISTRIBUTED_DEBUG=INFO says more"
        return [bad(subject, f"{ranks} ranks on {pool[0]} failed: {error}", fix)]
    told = (
        f"{ranks} ranks on {pool[0]}: {found['bandwidth'] / 1e6:,.0f} MB/s of gradient, "
        f"{found['latency'] * 1e3:.2f} ms for the smallest"
    )
    if found["wrong"]:
        return [bad(subject, f"{told}, and the sum was wrong", "do not train here: look at the memory and the driver")]
    if pool[1] == "cuda" and pool[0].endswith("gloo"):
        # NCCL refuses two ranks on one GPU unless it is told otherwise, so these ranks fell back to gloo.
        return [warn(subject, told, "several ranks share a GPU, so tensors go through the host: use --gpus 1")]
    return [ok(subject, told)]


def _pool(ranks: int) -> tuple[str, str]:
    """A description of the devices and backend of the trial all-reduce, and the device type."""
    import torch

    from lockstep.distributed.nccl import SHARES_SINCE, SHARING, loaded_version

    count = torch.cuda.device_count()
    if not count:
        return "the CPU with gloo", "cpu"
    if count >= ranks:
        return f"{ranks} GPUs with NCCL", "cuda"
    shared = os.environ.get(SHARING) == "1" and loaded_version() >= SHARES_SINCE
    return f"{count} GPU(s) with {'NCCL' if shared else 'gloo'}", "cuda"


def _summary(findings: list[Finding]) -> str:
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in _SIGNS}
    if counts["bad"]:
        return f"{counted(counts['bad'], 'problem')} would stop a run; see BAD above"
    if counts["warn"]:
        return f"a run would work; {counted(counts['warn'], 'thing')} could be better, see WARN above"
    return "no problems found; start with: lockstep train snake --preset small"
