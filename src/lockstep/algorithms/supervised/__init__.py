"""Supervised learning: epochs over labelled samples, divided among lanes."""
