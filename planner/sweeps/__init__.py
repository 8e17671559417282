"""Sweeps: one plan request over a grid of values."""
