"""Kinds of jobs, by the name that a row has."""

SWEEP = "sweep"
SIMULATION = "simulation"
