"""Budgets over months: demand curves, fleets, commitments, buy or rent. Pure calculation."""
