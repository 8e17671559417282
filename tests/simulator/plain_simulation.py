"""The same fleet simulated the plain way: every step of every server, every request by itself.

No closed forms, no sums that are kept up to date, no compiled code: contexts are summed over the
running requests at every step, blocks are counted sequence by sequence, gaps are lists. The step
time comes straight from :class:`planner.roofline.StepModel` (or any function of the same form).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from planner.roofline import StepBatch, StepModel
from planner.simulator import RequestTable, SimulatedFleet, SimulatedPool
from planner.simulator.fleet import expected_tokens
from planner.simulator.options import Failure

Part = tuple[float, float]
"""[token] new and cached of one prompt or chunk."""
StepSeconds = Callable[[int, float, list[Part], int], float]
"""Decodes, their mean context, prompt parts, prompts that end: seconds of the step."""


def affine(step_s: float, token_s: float = 0.0, sequence_s: float = 0.0, context_s: float = 0.0
           ) -> StepSeconds:
    """The plain form of :func:`planner.simulator.affine_steps`."""
    def seconds(decodes: int, context: float, parts: list[Part], _: int) -> float:
        tokens = sum(new for new, _ in parts)
        return step_s + token_s * tokens + decodes * (sequence_s + context_s * context)
    return seconds


def of_model(model: StepModel, scale: float = 1.0) -> StepSeconds:
    """Step seconds of a deployment; prompts in one pass attend each on its own."""
    ranks = model.deployment.layout.data

    def seconds(decodes: int, context: float, parts: list[Part], ends: int) -> float:
        tokens = sum(new for new, _ in parts)
        step = model.step(StepBatch(decodes=decodes * ranks, context=context,
                                    prefill_tokens=tokens, prefill_sequences=float(len(parts)),
                                    logits=float(ends) if parts else 0.0))
        rest = sum(float(t.seconds) for t in step.terms if t.name != "attention_prefill")
        sides = [0.0, 0.0]
        for new, cached in parts:
            alone = model.step(StepBatch(prefill_tokens=new, prefill_sequences=1.0, cached=cached))
            term = next(t for t in alone.terms if t.name == "attention_prefill")
            sides[0] += float(term.compute_s)
            sides[1] += float(term.memory_s)
        return scale * (rest + max(sides))
    return seconds


@dataclass(slots=True)
class Job:
    """One request on its way."""

    place: int
    arrival_s: float
    prompt: int
    output: int
    cached: int
    wire_s: float = 0.0
    ready_s: float = 0.0
    steps: int = 0
    """Outputs that the answer is sent in."""
    done: int = 0
    """Of them so far; tokens where a step writes one."""
    todo: float = 0.0
    """[token] to prefill before it decodes (again)."""
    hit: float = 0.0
    chunked: float = 0.0
    has_cache: bool = False
    tokens_s: list[float] = field(default_factory=list)
    prefill_s: float = 0.0
    lag_s: float = 0.0
    queued_s: float = 0.0
    prefill_done_s: float = 0.0
    preemptions: int = 0
    retries: int = 0

    @property
    def context(self) -> float:
        """[token] so far: the first token is alone, but after a hand-over."""
        alone = 0 if self.has_cache else min(self.done, 1)
        return self.prompt + alone + self.yields * (self.done - alone)

    @property
    def yields(self) -> float:
        """[token] that each further step writes."""
        return (self.output - 1) / max(self.steps - 1, 1) if self.output > 1 else 1.0


@dataclass(slots=True)
class Server:
    """One data-parallel rank."""

    pool: int
    now: float = -math.inf
    up: bool = True
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    partial: Job | None = None
    load: int = 0
    card_free: float = -math.inf
    down_until: float = -math.inf


class Plain:
    """Plays a request table on a fleet, routed round robin or to the least loaded.

    With drafts, ``drafts`` are the seconds of a step of the draft model of the last pool, and
    ``outputs`` the outputs of every answer.
    """

    def __init__(self, fleet: SimulatedFleet, steps: list[StepSeconds], requests: RequestTable,
                 router: str = "round_robin", failures: tuple[Failure, ...] = (),
                 drafts: StepSeconds | None = None, outputs: list[int] | None = None) -> None:
        self.drafts = drafts
        self.fleet, self.steps, self.router = fleet, steps, router
        wires = fleet.transfer.wire_s(requests.prompt_tokens) if fleet.transfer else None
        self.shares = ((fleet.transfer.send_share, fleet.transfer.receive_share)
                       if fleet.transfer else (1.0, 1.0))
        self.jobs = [Job(i, *(x[i].item() for x in (
            requests.arrival_s, requests.prompt_tokens, requests.output_tokens,
            requests.cached_tokens)), wire_s=float(wires[i]) if wires is not None else 0.0)
            for i in range(len(requests))]
        for i, job in enumerate(self.jobs):
            job.steps = outputs[i] if outputs else job.output
        self.servers = [Server(q) for q, pool in enumerate(fleet.pools)
                        for _ in range(pool.replicas * pool.ranks)]
        self.turn = [0, 0]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        start = self.jobs[0].arrival_s
        for f in failures:
            self._plan_failure(f, start)

    # -- the loop -----------------------------------------------------------------------------

    def play(self) -> list[Job]:
        coming = iter(self.jobs)
        job = next(coming, None)
        while True:
            arrival = job.arrival_s if job else math.inf
            event = min(self.events, key=lambda e: e[:2], default=None)
            external = min(arrival, event[0] if event else math.inf)
            server = min(self.servers, key=self.start)
            if external <= self.start(server):
                if external == math.inf:
                    return self.jobs
                if event and event[0] <= arrival:
                    self.events.remove(event)
                    event[2](event[0])
                else:
                    assert job is not None
                    self.send_in(job, arrival)
                    job = next(coming, None)
            else:
                server.now = self.start(server)
                self.step(server)

    def start(self, server: Server) -> float:
        """When the next step of a server begins."""
        if server.running or server.partial:
            return server.now
        return max(server.now, server.waiting[0].ready_s) if server.waiting else math.inf

    def at(self, when: float, what: Callable[[float], None]) -> None:
        self.events.append((when, len(self.events), what))

    def pool(self, server: Server) -> SimulatedPool:
        return self.fleet.pools[server.pool]

    # -- routing ------------------------------------------------------------------------------

    def choose(self, q: int) -> Server:
        group = [s for s in self.servers if s.pool == q]
        order = [group[(self.turn[q] + i) % len(group)] for i in range(len(group))]
        alive = [s for s in order if s.up]
        if not alive:
            return min(group, key=lambda s: s.now)
        if self.router == "least_loaded":
            self.turn[q] = (self.turn[q] + 1) % len(group)
            return min(alive, key=lambda s: s.load)
        self.turn[q] = (group.index(alive[0]) + 1) % len(group)
        return alive[0]

    def send_in(self, job: Job, now: float) -> None:
        job.done, job.tokens_s, job.chunked, job.has_cache = 0, [], 0.0, False
        job.todo, job.hit = float(job.prompt - job.cached), float(job.cached)
        self.queue(self.choose(0), job, now)

    def queue(self, server: Server, job: Job, ready: float) -> None:
        job.ready_s = ready
        server.load += 1
        server.waiting.append(job)

    # -- memory -------------------------------------------------------------------------------

    def bytes_of(self, q: int, job: Job, tokens: float) -> float:
        memory = self.fleet.pools[q].memory
        if self.fleet.pools[q].scheduler == "static":
            tokens += job.output
        elif self.fleet.pools[q].reserves or self.fleet.pools[q].draft_tokens:
            tokens = min(tokens, job.prompt + 1.0) + job.output
        total = float(math.ceil(memory.state_bytes))
        for window, size in zip(memory.windows, memory.bytes_per_token, strict=True):
            blocks = math.ceil(min(tokens, float(window)) / memory.block_tokens)
            total += blocks * math.ceil(float(size) * memory.block_tokens)
        return total

    def used(self, server: Server, ahead: int = 0) -> float:
        """[B] of the running requests, ``ahead`` tokens from now, and of a prompt in chunks."""
        partial = [server.partial] if server.partial else []
        return (sum(self.bytes_of(server.pool, j, j.context + ahead) for j in server.running)
                + sum(self.bytes_of(server.pool, j, j.context + 1) for j in partial))

    def may_admit(self, server: Server, job: Job, others: list[Job], ahead: int = 0) -> bool:
        pool = self.pool(server)
        if job.ready_s > server.now or len(server.running) + len(others) >= pool.max_sequences:
            return False
        extra = 0 if job.has_cache else 1
        held = sum(self.bytes_of(server.pool, j, j.context + 1) for j in others)
        need = self.bytes_of(server.pool, job, job.context + extra)
        return self.used(server, ahead) + held + need <= pool.memory.capacity_bytes

    def admit(self, server: Server) -> Job:
        job = server.waiting.pop(0)
        job.queued_s += server.now - job.ready_s
        return job

    def preempt(self, server: Server) -> None:
        job = server.running.pop()
        job.todo, job.hit, job.chunked, job.has_cache = job.context, 0.0, 0.0, False
        job.preemptions += 1
        job.ready_s = server.now
        server.waiting.insert(0, job)

    # -- steps --------------------------------------------------------------------------------

    def step(self, server: Server) -> None:
        {"static": self.static, "chunked": self.chunked, "prefill": self.prefill}.get(
            self.pool(server).scheduler, self.prefill_first)(server)

    def token(self, server: Server, job: Job, end: float) -> None:
        job.tokens_s.append(end)
        job.done += 1
        if job.done == job.steps:
            server.load -= 1
            if job in server.running:
                server.running.remove(job)

    def packed(self, server: Server) -> list[Job]:
        pool, taken = self.pool(server), []
        while server.waiting and len(taken) < pool.prompts_per_pass:
            job = server.waiting[0]
            tokens = sum(j.todo for j in taken) + job.todo
            if not self.may_admit(server, job, taken):
                break
            if job.has_cache:
                server.running.append(self.admit(server))
                continue
            if taken and tokens > pool.token_budget:
                break
            taken.append(self.admit(server))
        return taken

    def pass_seconds(self, server: Server, taken: list[Job]) -> float:
        parts = [(j.todo, j.hit) for j in taken]
        return self.steps[server.pool](0, 0.0, parts, len(parts))

    def prefill_first(self, server: Server) -> None:
        taken = self.packed(server)
        if taken:
            seconds = self.pass_seconds(server, taken)
            server.now += seconds * self.pool(server).occupancy
            for job in taken:
                job.prefill_s += seconds
                job.lag_s += seconds * (1.0 - self.pool(server).occupancy)
                self.join(server, job)
        else:
            self.decode(server, [], 0)

    def join(self, server: Server, job: Job) -> None:
        server.running.append(job)
        self.token(server, job, server.now)

    def decode(self, server: Server, parts: list[Part], ends: int) -> None:
        if not parts and self.used(server, 1) > self.pool(server).memory.capacity_bytes:
            self.preempt(server)
            return
        batch = list(server.running)
        context = sum(j.context for j in batch) / len(batch) if batch else 0.0
        server.now += self.steps[server.pool](len(batch), context, parts, ends)
        server.now += self.draft_seconds(server, len(batch), context)
        for job in batch:
            self.token(server, job, server.now)

    def draft_seconds(self, server: Server, batch: int, context: float) -> float:
        """Of the draft model before a step."""
        if not batch or self.drafts is None:
            return 0.0
        return self.pool(server).draft_tokens * self.drafts(batch, context, [], 0)

    def chunked(self, server: Server) -> None:
        pool, n = self.pool(server), len(server.running)
        if n and self.used(server, 1) > pool.memory.capacity_bytes:
            self.preempt(server)
            return
        space, parts, ready, touched = pool.token_budget - n, [], [], []
        while space >= 1:
            if server.partial is None:
                if not server.waiting or not self.may_admit(server, server.waiting[0], ready, 1):
                    break
                server.partial = self.admit(server)
            job = server.partial
            chunk = min(space, job.todo - job.chunked)
            parts.append((chunk, job.hit + job.chunked))
            touched.append(job)
            job.chunked += chunk
            space -= chunk
            if job.chunked < job.todo:
                break
            ready.append(job)
            server.partial = None
        if not parts and not n:
            return
        start = server.now
        self.decode(server, parts, len(ready))
        for job in touched:
            job.prefill_s += server.now - start
        for job in ready:
            self.join(server, job)

    def static(self, server: Server) -> None:
        taken: list[Job] = []
        while server.waiting and self.may_admit(server, server.waiting[0], taken):
            taken.append(self.admit(server))
        seconds = self.pass_seconds(server, taken)
        server.now += seconds
        for job in taken:
            job.prefill_s += seconds
            self.token(server, job, server.now)
        total = sum(j.prompt + 1.0 for j in taken)
        for _ in range(max(j.steps for j in taken) - 1):
            context = total / len(taken)
            server.now += self.steps[server.pool](len(taken), context, [], 0)
            server.now += self.draft_seconds(server, len(taken), context)
            total += len(taken) * expected_tokens(self.pool(server))
            for job in taken:
                if job.done < job.steps:
                    self.token(server, job, server.now)

    # -- two pools ----------------------------------------------------------------------------

    def prefill(self, server: Server) -> None:
        taken, begin = self.packed(server), server.now
        seconds = self.pass_seconds(server, taken)
        layers = self.fleet.transfer.layers if self.fleet.transfer else 1
        end = begin + seconds
        server.now = begin + seconds * self.pool(server).occupancy
        for job in taken:
            job.prefill_s += seconds
            job.prefill_done_s = end
            first = max(begin + seconds / layers, server.card_free)
            server.card_free = first + job.wire_s * self.shares[0]
            sent = max(first + job.wire_s, end + job.wire_s / layers)
            self.at(sent, self.hand_over(job, server))

    def hand_over(self, job: Job, sender: Server) -> Callable[[float], None]:
        def event(now: float) -> None:
            sender.load -= 1
            server = self.choose(1)
            begins = max(now - job.wire_s, server.card_free)
            server.card_free = begins + job.wire_s * self.shares[1]
            job.has_cache = True
            self.queue(server, job, max(now, begins + job.wire_s))
        return event

    # -- failures -----------------------------------------------------------------------------

    def _plan_failure(self, failure: Failure, start: float) -> None:
        pool = self.fleet.pools[failure.pool]
        group = [s for s in self.servers if s.pool == failure.pool]
        first = failure.replica * pool.ranks
        ranks = group[first : first + pool.ranks]
        back = start + failure.at_s + failure.duration_s
        self.at(start + failure.at_s, lambda now: self.fail(ranks, now, back))
        self.at(back, lambda now: self.recover(ranks, now))

    def fail(self, ranks: list[Server], now: float, back: float) -> None:
        lost = [(s, job) for s in reversed(ranks) for job in self._held(s)]
        for server in ranks:
            server.up = False
            server.down_until = max(server.down_until, back)
            server.now = max(server.now, server.down_until)
            server.running, server.partial, server.waiting = [], None, []
        for server, job in lost:
            server.load -= 1
            job.retries += 1
            self.send_in(job, now)

    def _held(self, server: Server) -> Iterator[Job]:
        """Latest queued first, then what was being chunked, then the running, oldest first."""
        yield from reversed(server.waiting)
        if server.partial:
            yield server.partial
        yield from server.running

    def recover(self, ranks: list[Server], now: float) -> None:
        for server in ranks:
            if now >= server.down_until:
                server.up = True
                server.now = max(server.now, now)
