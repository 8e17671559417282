"""The compiled loops over running sequences, a topic a module.

A plan asks these formulas hundreds of times for a few hundred states, where NumPy spends its time
on calls. Their machine code is kept for all modules together (:mod:`planner.loops.stored`).
"""
