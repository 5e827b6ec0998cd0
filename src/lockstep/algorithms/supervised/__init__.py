"""Supervised classification: epochs over labelled samples, divided among lanes."""
