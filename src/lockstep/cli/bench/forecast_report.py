"""The prediction for larger worlds as a table (each row marked measured, check or predicted), sentences and JSON."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from lockstep.cli.bench.cost_model import WORTHWHILE, Check, Exchanges, Forecast, Link, Prediction

_REASONS = {
    "compute": "compute still shrinks with every rank",
    "uneven lanes": "some ranks have one lane more, and the others wait for them; make --lanes a multiple of the ranks",
    "small shares": "a rank's share of the work is too small to compute efficiently; larger batches (--scaling weak) "
    "keep shares large",
    "exchange: bytes": "transferring gradients takes long; larger batches exchange less often, or use a faster link",
    "exchange: latency": "many exchanges each wait for the link's latency; larger batches need fewer exchanges",
}


def table(title: str, device: str, measured: Mapping[int, float], prediction: Prediction) -> Table:
    """Ranks, speed and what limits it; `measured`: steps a second by number of ranks."""
    caption = f"compute: measured by one rank on {device} that does one rank's share; link: {_about_link(prediction)}"
    found = Table(title=f"PREDICTED, not measured: {title}", caption=caption)
    for column in ("ranks", "", "steps/s", "efficiency", "exchange", "limited by"):
        found.add_column(column, justify="left" if column in ("", "limited by") else "right", no_wrap=True)
    one = measured[1]
    for ranks, speed in sorted(measured.items()):
        found.add_row(str(ranks), "measured", f"{speed:,.0f}", f"{speed / one / ranks:.0%}")
        for check in (check for check in prediction.checks if check.ranks == ranks):
            found.add_row(str(ranks), "check", *_check_cells(check, one), end_section=ranks == max(measured))
    for forecast in prediction.forecasts:
        found.add_row(str(forecast.ranks), "predicted", *_cells(forecast))
    for ranks, reason in prediction.impossible.items():
        # Usually lanes are too few; under weak scaling other settings may also be exceeded.
        lacking = f"lanes: --lanes {ranks}" if reason.startswith(f"ranks {ranks} is more") else "settings"
        found.add_row(str(ranks), "cannot", "", "", "", lacking)
    return found


def _cells(forecast: Forecast) -> list[str]:
    exchange = forecast.share(forecast.transfer + forecast.waiting)
    return [f"{forecast.speed:,.0f}", f"{forecast.efficiency:.0%}", f"{exchange:.0%}", forecast.limit]


def _check_cells(check: Check, one: float) -> list[str]:
    efficiency = check.predicted / one / check.ranks
    crowd = "" if check.crowding == 1 else ", shared"
    return [f"{check.predicted:,.0f}", f"{efficiency:.0%}", "", f"error {check.error:+.0%}{crowd}"]


def sentences(prediction: Prediction) -> list[str]:
    """What the prediction is based on, how accurate it was here, and where more ranks stop helping."""
    lines = [] if prediction.exchanges is None else [_about_exchanges(prediction.exchanges, prediction.steps)]
    lines += [_about_check(check) for check in prediction.checks]
    if prediction.forecasts:
        lines.append(_about_end(prediction.forecasts))
    # All impossible worlds have the same reason; the smallest one's is enough.
    lines += [f"Predicted no further: {reason}." for reason in [*prediction.impossible.values()][:1]]
    return lines


def _about_exchanges(each: Exchanges, steps: float) -> str:
    moved = [f"{each.sums:,.0f} sum(s) over ranks, {each.sum_bytes / 1e6:,.2f} MB in all"]
    if each.gathers:
        moved.append(f"{each.gathers:,.0f} all-gather(s) of lanes, {each.gather_bytes / 1e6:,.2f} MB in all")
    return f"An update ({steps:,.0f} steps) makes {'; '.join(moved)}; {each.flags:,.0f} decision(s)."


def _about_check(check: Check) -> str:
    said = (
        f"Checked on {check.ranks} ranks: {check.measured:,.0f} steps/s measured, {check.predicted:,.0f} predicted "
        f"from one rank and the link alone (error {check.error:+.0%})"
    )
    if check.crowding > 1:
        said += f"; {check.crowding:.3g} ranks share each device, so compute was multiplied by that"
    return said + "."


def _about_end(forecasts: list[Forecast]) -> str:
    low = next((forecast for forecast in forecasts if forecast.efficiency < WORTHWHILE), None)
    last = low or forecasts[-1]
    verb = "falls below" if low else "stays above"
    until = f"at {last.ranks} ranks" if low else f"up to {last.ranks} ranks"
    return f"Predicted efficiency {verb} {WORTHWHILE:.0%} {until} ({last.efficiency:.0%}): {_REASONS[last.limit]}."


def _about_link(prediction: Prediction) -> str:
    link = prediction.link
    way = "a tree" if link.tree else "a ring"
    return (
        f"{link.source}: {link.bandwidth / 1e9:.3g} GB/s, {link.latency * 1e6:.3g} µs for the smallest exchange of two "
        f"ranks, along {way}; assumes no overlap and equally fast ranks"
    )


def as_json(prediction: Prediction) -> dict[str, Any]:
    """Everything, under names that state their unit; only the checks were measured on that many ranks."""
    return {
        "link": _link_json(prediction.link),
        "steps_per_update": prediction.steps,
        "exchanges_per_update": prediction.exchanges and vars(prediction.exchanges),
        "predicted": [_forecast_json(forecast) for forecast in prediction.forecasts],
        "checks": [_check_json(check) for check in prediction.checks],
        "not_possible": {str(ranks): reason for ranks, reason in prediction.impossible.items()},
        "in_words": sentences(prediction),
    }


def _link_json(link: Link) -> dict[str, Any]:
    return {
        "source": link.source,
        "gb_per_second": link.bandwidth / 1e9,
        "latency_microseconds": link.latency * 1e6,
        "flag_latency_microseconds": link.flag_latency * 1e6,
        "latency_grows_along": "tree" if link.tree else "ring",
    }


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Includes seconds per step, so that a reader can work out the effect of another bandwidth or latency."""
    return {
        "ranks": forecast.ranks,
        "predicted_steps_per_second": forecast.speed,
        "predicted_efficiency": forecast.efficiency,
        "split": {
            "compute": forecast.share(forecast.compute),
            "bytes": forecast.share(forecast.transfer),
            "latency": forecast.share(forecast.waiting),
        },
        "compute_seconds_per_step": forecast.compute,
        "bytes_seconds_per_step": forecast.transfer,
        "latency_seconds_per_step": forecast.waiting,
        "limited_by": forecast.limit,
    }


def _check_json(check: Check) -> dict[str, Any]:
    return {
        "ranks": check.ranks,
        "measured_steps_per_second": check.measured,
        "predicted_steps_per_second": check.predicted,
        "error": check.error,
        "ranks_per_device": check.crowding,
    }
