"""Burstiness of arrivals: what a squared coefficient of variation of their gaps means."""

from __future__ import annotations


def split_arrival_cv2(arrival_cv: float, replicas: int) -> float:
    """Squared CV of arrivals at one of ``replicas`` when requests are dealt at random.

    A random split of a renewal stream: ca_i^2 = 1 + (ca^2 - 1) / R (Whitt 1983, QNA eq. 36).
    """
    return 1.0 + (arrival_cv**2 - 1.0) / max(replicas, 1)


def peakedness(arrival_cv2: float) -> float:
    """Variance of the number in an infinite system over its mean, for bursty arrivals.

    z = 1 + (ca^2 - 1) / 2 for exponential holding times (Eckberg 1983); smoother arrivals than
    Poisson are taken as Poisson.
    """
    return max(1.0, 1.0 + (arrival_cv2 - 1.0) / 2.0)


def burst_ahead(arrival_cv2: float) -> float:
    """e = (ca^2 - 1) / 2: requests of its own burst ahead of a request, and behind it, mean."""
    return max(arrival_cv2 - 1.0, 0.0) / 2.0


def burst_behind(arrival_cv2: float, prompts_per_pass: float) -> float:
    """Requests of its own burst that are prefilled after a request, where passes hold several.

    The first of a burst starts alone, as the server is idle, and the others follow in passes; who
    shares a pass stops nobody in it. Without sharing e on average. With passes of k prompts
    (k - 1) / 2 fewer, but the first of a burst of 1 + e meets all others: e / (1 + e) a request.
    """
    ahead = burst_ahead(arrival_cv2)
    return max(ahead - max(prompts_per_pass - 1.0, 0.0) / 2.0, ahead / (1.0 + ahead))
