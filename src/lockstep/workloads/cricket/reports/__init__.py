"""Evaluation of predictions: metrics, baselines, reports, and watching a match."""
