"""Measured benchmarks: reading, screening, predicting and fitting engine profiles."""
