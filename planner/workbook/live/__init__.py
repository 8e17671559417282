"""The plan as formulas: every number computed by the sheet as the planner computes it."""
