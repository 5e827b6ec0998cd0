"""Scripted players and past actors that play the teams that are not trained."""
