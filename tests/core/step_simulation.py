"""A small step-by-step simulation of one replica: the referee of the closed forms.

Every engine step is played with the seconds of the same StepModel; nothing is averaged. Prompts
are admitted first come first served while the batch limit has room.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.roofline import StepBatch, StepModel
from planner.workload import Lengths


@dataclass(slots=True)
class Request:
    """One request on its way."""

    arrival_s: float
    prompt: int
    output: int
    done: int = 0
    """[token] of the prompt that is in the cache."""
    left: int = 0
    first_s: float = 0.0
    end_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.arrival_s

    @property
    def tpot_s(self) -> float:
        return (self.end_s - self.first_s) / max(self.output - 1, 1)


@dataclass(slots=True)
class Clock:
    """Step seconds of a deployment, remembered on a fine grid."""

    model: StepModel
    known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def step_s(self, decodes: int, context: float, prefill: int = 0, prompts: int = 1,
               cached: float = 0.0) -> float:
        """Decodes beside new prompt tokens; context and cache to 128, large prefills to 32."""
        grain = 1 if prefill < 64 else 32
        key = (decodes, round(context / 128), -(-prefill // grain) * grain, prompts,
               round(cached / 128))
        if key not in self.known:
            self.known[key] = float(self.model.seconds(StepBatch(
                decodes=key[0], context=key[1] * 128.0, prefill_tokens=key[2],
                prefill_sequences=float(prompts), cached=key[4] * 128.0)))
        return self.known[key]


def draw(lengths: Lengths, rng: random.Random) -> int:
    """One length; between the points of a binned distribution nothing is drawn."""
    return max(1, round(rng.choices(lengths.tokens.tolist(), lengths.weights.tolist())[0]))


def arrivals(rate_per_s: float, prompt: Lengths, output: Lengths, count: int, seed: int
             ) -> list[Request]:
    """Poisson arrivals."""
    rng, now, made = random.Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate_per_s)
        made.append(Request(now, draw(prompt, rng), draw(output, rng)))
    return made


@dataclass(slots=True)
class Replica:
    """What runs and what waits on one replica."""

    clock: Clock
    cap: int
    coming: deque[Request]
    now: float = 0.0
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)

    def admit(self) -> None:
        if not self.waiting and not self.running and self.coming:
            self.now = max(self.now, self.coming[0].arrival_s)
        while self.coming and self.coming[0].arrival_s <= self.now:
            self.waiting.append(self.coming.popleft())

    def context(self) -> float:
        tokens = sum(r.prompt + r.output - r.left for r in self.running)
        return tokens / len(self.running) if self.running else 0.0

    def first_token(self, request: Request) -> None:
        request.first_s, request.left = self.now, request.output - 1
        if request.left:
            self.running.append(request)
        else:
            self.end(request)

    def end(self, request: Request) -> None:
        request.end_s = self.now
        self.finished.append(request)

    def decoded(self, running: list[Request]) -> None:
        for request in running:
            request.left -= 1
            if not request.left:
                self.end(request)
        self.running = [r for r in self.running if r.left]


def prefill_first(replica: Replica, budget: int = 8192) -> None:
    """One step of prefill-first batching: whole prompts within the token budget, else decodes."""
    room = replica.cap - len(replica.running)
    packed: list[Request] = []
    while replica.waiting and len(packed) < room and (
            not packed or sum(r.prompt for r in packed) + replica.waiting[0].prompt <= budget):
        packed.append(replica.waiting.popleft())
    if packed:
        replica.now += replica.clock.step_s(0, 0.0, sum(r.prompt for r in packed), len(packed))
        for request in packed:
            replica.first_token(request)
    elif replica.running:
        replica.now += replica.clock.step_s(len(replica.running), replica.context())
        replica.decoded(replica.running)


def chunked(replica: Replica, budget: int) -> None:
    """One stall-free step: every decode, and prompt tokens in what is left of the budget."""
    batch, space = list(replica.running), budget - len(replica.running)
    context, taken, cached, ready = replica.context(), 0, 0.0, []
    places = replica.cap - len(batch)
    chunks = 0
    while replica.waiting and space > 0 and len(ready) < places:
        head = replica.waiting[0]
        chunk = min(space, head.prompt - head.done)
        cached, chunks = max(cached, float(head.done)), chunks + 1
        head.done, taken, space = head.done + chunk, taken + chunk, space - chunk
        if head.done < head.prompt:
            break
        ready.append(replica.waiting.popleft())
    if not batch and not taken:
        return
    replica.now += replica.clock.step_s(len(batch), context, taken, max(chunks, 1),
                                        cached if chunks == 1 else 0.0)
    replica.decoded(batch)
    for request in ready:
        replica.first_token(request)


def decode_only(replica: Replica) -> None:
    """One step of a decode pool: arrivals bring their cache along."""
    while replica.waiting and len(replica.running) < replica.cap:
        request = replica.waiting.popleft()
        request.left = request.output
        replica.running.append(request)
    if not replica.running:
        return
    replica.now += replica.clock.step_s(len(replica.running), replica.context())
    for request in replica.running:
        request.first_s = request.first_s or replica.now
    replica.decoded(replica.running)


def simulate(model: StepModel, requests: list[Request], cap: int,
             step: Callable[[Replica], None]) -> list[Request]:
    """Serve all requests; those of the first tenth (warm-up) are left out of the answer."""
    replica = Replica(Clock(model), cap, deque(requests))
    while replica.coming or replica.waiting or replica.running:
        replica.admit()
        step(replica)
    skip = requests[len(requests) // 10].arrival_s
    return [r for r in replica.finished if r.arrival_s >= skip]


def percentile(values: list[float], share: float) -> float:
    """Smallest value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
