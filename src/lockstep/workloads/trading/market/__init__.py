"""Prices and option quotes: simulated paths, real bars, Black-Scholes and the option chain."""
