"""Continuous control: tasks of DeepMind Control, Gymnasium and Meta-World."""
