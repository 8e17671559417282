"""Seed tables, the loader, and the catalog as a value."""
