"""Capacity planner for LLM inference: how many GPUs of which kind, in which set-up, at what cost."""

__version__ = "0.1.0"
