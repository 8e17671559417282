"""Capacity planner for LLM inference: how many GPUs of which kind, in which setup, at what cost."""

__version__ = "0.1.0"
