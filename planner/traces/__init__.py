"""Traces of requests: read them, describe them, keep them small."""
