"""Black-Scholes against SciPy's closed forms, autograd and put-call parity, to 1e-6."""

import math

import pytest
import torch

from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR, black_scholes, skewed

INTEREST = 0.05


def number(value):
    return torch.tensor([value], dtype=torch.float64)


def grid():
    axes = torch.meshgrid(
        torch.tensor([60.0, 95.0, 100.0, 137.5], dtype=torch.float64),
        torch.tensor([0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3], dtype=torch.float64),
        torch.tensor([0.5, 7.0, 14.0, 21.0, 30.0, 45.0], dtype=torch.float64),
        torch.tensor([0.08, 0.25, 0.9], dtype=torch.float64),
        indexing="ij",
    )
    spot, moneyness, days, volatility = (axis.flatten() for axis in axes)
    return spot, spot * moneyness, days, volatility


def closed_forms(norm, spot, strike, days, sigma, r):
    years = days / 365
    d1 = (math.log(spot / strike) + (r + sigma**2 / 2) * years) / (sigma * math.sqrt(years))
    d2 = d1 - sigma * math.sqrt(years)
    present = strike * math.exp(-r * years)
    decay = spot * norm.pdf(d1) * sigma / (2 * math.sqrt(years))
    return {
        "call": spot * norm.cdf(d1) - present * norm.cdf(d2),
        "put": present * norm.cdf(-d2) - spot * norm.cdf(-d1),
        "call_delta": norm.cdf(d1),
        "gamma": norm.pdf(d1) / (spot * sigma * math.sqrt(years)),
        "call_theta": (-decay - r * present * norm.cdf(d2)) / 365,
        "put_theta": (-decay + r * present * norm.cdf(-d2)) / 365,
        "vega": spot * norm.pdf(d1) * math.sqrt(years) / 100,
        "call_rho": years * present * norm.cdf(d2) / 100,
        "put_rho": -years * present * norm.cdf(-d2) / 100,
    }


def test_a_textbook_option_has_the_textbooks_price():
    """S 42, K 40, half a year, 20 % volatility, 10 % interest: a call of 4.76 and a put of 0.81."""
    sheet = black_scholes(number(42.0), number(40.0), number(365 / 2), number(0.2), 0.1)
    assert round(float(sheet.call), 2) == 4.76
    assert round(float(sheet.put), 2) == 0.81


def test_prices_and_greeks_equal_the_closed_forms():
    norm = pytest.importorskip("scipy.stats", reason="SciPy is not installed").norm
    inputs = grid()
    sheet = black_scholes(*inputs, INTEREST)
    for i, values in enumerate(zip(*(column.tolist() for column in inputs), strict=True)):
        for name, expected in closed_forms(norm, *values, INTEREST).items():
            assert float(getattr(sheet, name)[i]) == pytest.approx(expected, abs=1e-6), (name, values)


def test_greeks_are_the_derivatives_of_the_prices():
    spot, strike, days, volatility = (column.requires_grad_() for column in grid())
    rate = torch.full_like(spot, INTEREST).requires_grad_()

    def derivative(output, variable):
        return torch.autograd.grad(output.sum(), variable, create_graph=True)[0]

    sheet = black_scholes(spot, strike, days, volatility, rate)
    delta = derivative(sheet.call, spot)
    pairs = {
        "call_delta": (delta, sheet.call_delta),
        "put_delta": (derivative(sheet.put, spot), sheet.call_delta - 1),
        "gamma": (derivative(delta, spot), sheet.gamma),
        "call_theta": (-derivative(sheet.call, days), sheet.call_theta),
        "put_theta": (-derivative(sheet.put, days), sheet.put_theta),
        "vega": (derivative(sheet.put, volatility) / 100, sheet.vega),
        "call_rho": (derivative(sheet.call, rate) / 100, sheet.call_rho),
        "put_rho": (derivative(sheet.put, rate) / 100, sheet.put_rho),
    }
    for name, (expected, found) in pairs.items():
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0, msg=name)


def test_prices_obey_put_call_parity():
    spot, strike, days, volatility = grid()
    sheet = black_scholes(spot, strike, days, volatility, INTEREST)
    forward = spot - strike * torch.exp(-INTEREST * days / DAYS_PER_YEAR)
    torch.testing.assert_close(sheet.call - sheet.put, forward, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("spot", "call", "put"), [(110.0, 10.0, 0.0), (100.0, 0.0, 0.0), (93.5, 0.0, 6.5)])
def test_an_expired_option_is_worth_its_exercise_value(spot, call, put):
    sheet = black_scholes(number(spot), number(100.0), number(0.0), number(0.25), INTEREST)
    assert (float(sheet.call), float(sheet.put)) == (call, put)
    assert all(torch.isfinite(value).all() for value in vars(sheet).values())


def test_volatility_rises_away_from_the_money():
    """20 % at the money; 10 % away from the strike adds 0.1 x 0.1."""
    strikes = torch.tensor([100.0, 100.0 / 0.9, 100.0 / 1.1], dtype=torch.float64)
    found = skewed(torch.tensor(0.2, dtype=torch.float64), 100.0 / strikes, 0.1)
    torch.testing.assert_close(found, torch.tensor([0.2, 0.21, 0.21], dtype=torch.float64))


def test_float32_prices_are_accurate_to_a_hundredth_of_a_cent():
    inputs = grid()
    exact = black_scholes(*inputs, INTEREST)
    rough = black_scholes(*(column.float() for column in inputs), INTEREST)
    assert float((rough.call.double() - exact.call).abs().max()) < 1e-4
