"""`lockstep trade`: what a trained policy does on the newest day of data, with a paper account kept between days."""

import json
from dataclasses import dataclass
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.errors import UserError
from lockstep.output import show
from lockstep.workloads import registry
from lockstep.workloads.capabilities import TradeRequest, TradesOnPaper

USAGE = (
    "lockstep trade RUN | FILE --data latest.csv --account paper.json [--symbol NAME] [--json]\n\n"
    "Run it once a day with data that has a new day: it prints the action for that day with its probabilities and\n"
    "reason, and keeps the account in a file. A day is never decided on twice; days that were missed are made up for.\n"
    "No order is sent anywhere."
)


@dataclass(frozen=True, kw_only=True)
class TradeOptions(ModelOptions):
    """What is traded, and where the account is kept."""

    data: str = ""
    """Files or folders of daily bars, the newest day last, as for `train`."""
    chains: str = ""
    """Files of recorded option quotes, to trade instead of the model's prices."""
    account: str = ""
    """JSON file of the paper account; made on the first day."""
    symbol: str = ""
    """The symbol to trade; none = the account's, or the only one of the data."""
    json: bool = False
    """Print the decision as JSON."""


def trade(arguments: list[str]) -> int:
    """The verb `trade`."""
    text, rest = command.take_subject(arguments, "run", lambda _: command.help_text(USAGE, TradeOptions))
    options, fields = command.take(rest, TradeOptions())
    for name, what in (("data", "bars up to the newest day"), ("account", "the file that keeps the account")):
        if not getattr(options, name):
            raise UserError(f"--{name} is missing: name {what}")
    command.check_writable("account", options.account)
    subject = models.find(text, options, fields, options.data, needs=TradesOnPaper, chains=options.chains)
    trader = registry.require(subject.workload, TradesOnPaper)
    subject.check_policy(TRAINED)
    model = models.load(subject, options.device)
    result = trader.trade(
        TradeRequest(subject.config, model.learner, Path(options.account), options.symbol, model.trained_on)
    )
    if options.json:
        print(json.dumps(result.summary(), indent=1))
    else:
        show(result.table())
    return 0
