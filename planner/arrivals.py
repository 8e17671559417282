"""Burstiness of arrivals: what a squared coefficient of variation of their gaps means."""

from __future__ import annotations

from typing import NamedTuple

from planner.compiled import Array
from planner.loops.chain import influx_peaks, prompts_left
from planner.loops.gamma import gamma_share


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


class Influx(NamedTuple):
    """How requests come to decode on a replica where prompts are prefilled beside.

    Prompts stop the decodes, so that in the time left to these requests come at
    ``lambda / (1 - u)``, and in clusters: of those that come while a prompt runs the prompts run
    next. In a long stretch of that time their number N obeys ``N = A + lambda sum(S)``, A the
    arrivals of as much time without prompts, so the index of dispersion is
    ``I = (ca^2 + lambda^2 Var S) / (1 - u)^2``. Without a limit the running sequences then have
    ``z = 1 + (I - 1) E[min(o, o')] / E[o]`` times their mean as variance (Eckberg 1983, for any
    holding time). Data-parallel ranks wander each alone: that many times more of the whole.

    Past the limit a replica starts as many prompts as answers end, so it is one server that a
    request keeps for ``tau = S + o D(n) / n``, with load ``w``. A batch fills up while prompts run,
    and those that then wait for their prefill wait for a place: as after any prompt, ``h = u +
    (lambda^2 Var S + ca^2 u^2) / (2 (1 - u)) + u (ca^2 - 1) / 2`` of them (Pollaczek-Khinchine, of
    the numbers left behind; bursts as in ``mg1_wait_of``). The batch so stays full for a delay
    cycle that starts with ``o D(n) / n + h tau`` of work, not with one answer's.

    Attributes
    ----------
    peak : float or ndarray, shape (N,)
        z over the running sequences.
    full_peak : float
        Peakedness of the arrivals themselves, which wait past the limit.
    load : float or ndarray, shape (N,)
        u, share of time that prompts take from the decodes.
    ranks : int
        Data-parallel ranks, each with a limit of its own.
    left : float or ndarray, shape (N,)
        h, prompts that a rank leaves behind when one is done, mean.
    lanes : float
        Ranks that prompts are prefilled on: as many states of the whole are one of a rank, so a
        rank is full as many times as often as the last of them.
    """

    peak: Array | float = 1.0
    full_peak: float = 1.0
    load: Array | float = 0.0
    ranks: int = 1
    left: Array | float = 0.0
    lanes: float = 1.0

    @classmethod
    def of(cls, arrival_cv2: float, ranks: int = 1) -> Influx:
        """Where no prompts are prefilled."""
        peak = peakedness(max(1.0 + (arrival_cv2 - 1.0) / ranks, 1.0))
        return cls(ranks * peak, peak, 0.0, ranks)

    @classmethod
    def beside(cls, arrival_cv2: float, load: Array, swing: Array, overlap: float,
               ranks: int = 1) -> Influx:
        """Where prompts are prefilled beside.

        Parameters
        ----------
        load, swing : ndarray, shape (N,)
            u, and ``lambda^2 Var S``.
        overlap : float
            ``E[min(o, o')] / E[o]``, see :attr:`planner.workload.Lengths.overlap`.
        """
        own = max(1.0 + (arrival_cv2 - 1.0) / ranks, 1.0)
        return cls(influx_peaks(own, swing, load, overlap, float(ranks)), peakedness(own), load,
                   ranks, prompts_left(own, swing, load), float(ranks))


def burst_ahead(arrival_cv2: float) -> float:
    """e = (ca^2 - 1) / 2: requests of its own burst ahead of a request, and behind it, mean."""
    return max(arrival_cv2 - 1.0, 0.0) / 2.0


def burst_within(arrival_cv: float, rate_per_s: float, seconds: float) -> float:
    """Share of a request's own burst that came shortly before it: one within ``seconds`` [s] of the
    other.

    Gaps are taken as gamma distributed where they are burstier than Poisson's; where a share P of
    them is so short, P / (1 - P) come on end, of the e of :func:`burst_ahead`. At low rates even a
    burst takes longer than an answer.

    Parameters
    ----------
    arrival_cv, rate_per_s : float
        Of all requests, before they are dealt to replicas: a burst is dealt with its gaps.
    """
    ahead = burst_ahead(arrival_cv**2)
    if ahead <= 0.0:
        return 1.0
    short = float(gamma_share(arrival_cv**-2, rate_per_s * seconds / arrival_cv**2))
    return min(1.0, short / (1.0 - short) / ahead) if short < 1.0 else 1.0


def burst_behind(arrival_cv2: float, prompts_per_pass: float) -> float:
    """Requests of its own burst that are prefilled after a request, where passes hold several.

    The first of a burst starts alone, as the server is idle, and the others follow in passes; who
    shares a pass stops nobody in it. Without sharing e on average. With passes of k prompts
    (k - 1) / 2 fewer, but the first of a burst of 1 + e meets all others: e / (1 + e) a request.
    """
    ahead = burst_ahead(arrival_cv2)
    return max(ahead - max(prompts_per_pass - 1.0, 0.0) / 2.0, ahead / (1.0 + ahead))
