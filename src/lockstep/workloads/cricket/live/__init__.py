"""A match that is on: its next ball, what moved the forecast, and how the match may end."""
