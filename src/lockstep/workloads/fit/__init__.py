"""Supervised learning on anybody's dataset with anybody's module."""
