"""Simulations of plans and of fleets by hand: what is asked, and what the answer shows."""
