"""The engine step as formulas, one line a term of ``planner.roofline``.

Every GEMM group takes ``max(a (rows + half), m)``: ``a`` seconds a row of compute, ``m`` seconds of
weight reads. What is linear in the sequences (attention reads, collectives) is one factor, what
does not depend on them one constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from planner.collectives import all_reduce_wire_bytes, all_to_all_wire_bytes
from planner.hardware import IDLE_POWER_SHARE
from planner.kv_cache import heads_per_rank
from planner.llm import KvStream, Role
from planner.memory import MemoryBudget, stage_share
from planner.precision import FORMATS, Format
from planner.roofline import ACTIVATION_BYTES, LATENT, RECURRENT, Deployment, StepModel
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, exp, least, most, round_up, sqrt, when, whole, x


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """Input cells of one GPU type and one engine profile.

    Attributes
    ----------
    gpu, engine : dict of str to X
        By the names of :data:`planner.workbook.live.inputs.GPU_FIELDS` and ``ENGINE_FIELDS``.
    """

    gpu: dict[str, X]
    engine: dict[str, X]

    def peak(self, fmt: Format) -> X:
        """Dense peak [FLOP/s] of a format, or of the 16-bit units where it has none."""
        return self.gpu.get(f"{fmt.peak}_tflops", self.gpu["bf16_tflops"]) * 1e12

    @property
    def bandwidth(self) -> X:
        """[B/s] of the device memory."""
        return self.gpu["bandwidth_gb_s"] * 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Gemm:
    """One group: seconds a row, seconds of reads."""

    per_row: X
    read: X

    def seconds(self, rows: X) -> X:
        """Time [s] for rows that count the half-filled tiles in."""
        return most(self.per_row * rows, self.read)


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """Routed experts of one format."""

    idle: X
    """ln of the share of the experts that one token leaves alone."""
    skew: X
    """How unevenly they are used (``planner.roofline.experts_touched``)."""
    active: float
    experts: int
    per_row: X
    """[s] per row of an expert and active expert."""
    read_all: X
    """[s] to read all of them."""
    padded: bool
    """Whether few rows are multiplied as a whole tile (``planner.roofline.least_rows``)."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One kind of cache entry: seconds per pair and entry."""

    stream: KvStream
    pair: X
    expand: X | None
    entry: X


@dataclass(slots=True, eq=False)
class StepSheet:
    """The lines of one deployment and what a step costs by them."""

    board: Board
    deployment: Deployment
    hardware: Hardware
    budget: MemoryBudget
    tag: str = ""
    gemms: list[Gemm] = field(default_factory=list)
    head: Gemm | None = None
    experts: list[Experts] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    scale: X = field(default_factory=lambda: x(1.0))
    comm: X = field(default_factory=lambda: x(0.0))
    fixed: X = field(default_factory=lambda: x(0.0))
    decode: X = field(default_factory=lambda: x(0.0))
    attention: X = field(default_factory=lambda: x(0.0))
    state_token: X | None = None
    state_prompt: X | None = None
    context: X = field(default_factory=lambda: x(0.0))
    mean_bytes: X = field(default_factory=lambda: x(0.0))
    memory_cap: X = field(default_factory=lambda: x(0.0))
    pool_gib: X = field(default_factory=lambda: x(0.0))
    usable_gib: X = field(default_factory=lambda: x(0.0))

    # -- lines ----------------------------------------------------------------------------------

    def write(self, context: X, held: tuple[X, X]) -> None:
        """Write the lines of weights, cache, memory and collectives.

        ``held``: mean and spread [token] of what a running sequence holds of the cache
        (``setups.base.held_context``).
        """
        self.context = context
        model = StepModel.of(self.deployment)
        self.board.heading("Seconds of one engine step, per term",
                           "Sizes come from the model, its precision and the layout; they are "
                           "engine results. Rates come from the inputs.")
        self._power()
        self._weights(model)
        self._streams()
        self._links()
        self._memory(*held)

    def _power(self) -> None:
        cap, gpu = self.deployment.power_cap_w, self.hardware.gpu
        if cap is None or self.deployment.gpu.tdp_w is None:
            return
        idle = IDLE_POWER_SHARE * gpu["tdp_w"]
        left = least(most((x(cap) - idle) / (gpu["tdp_w"] - idle), 1e-6), 1.0)
        self.scale = self.board.line("Compute left under the power cap", left ** (1.0 / 3.0),
                                     "share", "cube root of the power left")

    def _weights(self, model: StepModel) -> None:
        engine, d = self.hardware.engine, self.deployment
        for bucket in model.dense:
            self.gemms.append(self._gemm(f"Linears {bucket.fmt.name}", bucket.params,
                                         bucket.params * bucket.fmt.bytes_per_value, bucket.fmt))
        fmt = d.llm.role_format(Role.LM_HEAD, d.weights)
        head = d.llm.lm_head_params / d.layout.tensor
        self.head = self._gemm("LM head", head, head * fmt.bytes_per_value, fmt)
        load = engine["expert_imbalance"] if d.layout.expert > 1 else x(1.0)
        merged: dict[tuple[str, int, int], float] = {}
        for group, fmt, elements in model.experts:
            ff = group.feed_forward
            where = (fmt.name, ff.experts, ff.active)
            merged[where] = merged.get(where, 0.0) + group.count * elements
        for (name, experts, active), size in merged.items():
            self.experts.append(self._experts(FORMATS[name], experts, active, size, load))

    def _gemm(self, name: str, params: float, size: float, fmt: Format) -> Gemm:
        board, engine = self.board, self.hardware.engine
        held = board.line(f"{name}: parameters on one GPU", params, "", "", "count", "engine")
        per = board.line(f"{name}: compute per row",
                         2.0 * held / (self.hardware.peak(fmt) * self.scale * engine["mfu"]), "s",
                         "2 FLOP a parameter over peak × MFU", "science")
        read = board.line(f"{name}: reading the weights",
                          held * (size / params) / (self.hardware.bandwidth * engine["mbu"]), "s",
                          "bytes over bandwidth × MBU", "science")
        return Gemm(per, read)

    def _experts(self, fmt: Format, experts: int, active: int, size: float, load: X) -> Experts:
        board, engine, layout = self.board, self.hardware.engine, self.deployment.layout
        held = board.line(f"Experts {fmt.name}: parameters, all layers", size, "",
                          f"{active} of {experts} active", "count", "engine")
        per = board.line(f"Experts {fmt.name}: compute per row",
                         2.0 * held / (layout.tensor * experts) * load
                         / (self.hardware.peak(fmt) * self.scale * engine["expert_mfu"]), "s",
                         "of one row of every expert", "science")
        read = board.line(f"Experts {fmt.name}: reading all",
                          held * (fmt.bytes_per_value / (layout.tensor * layout.data)) * load
                          / (self.hardware.bandwidth * engine["expert_mbu"]), "s", "", "science")
        idle = math.log(1.0 - active / experts) if active < experts else -700.0
        padded = not self.deployment.gpu.unpacks(fmt)
        return Experts(x(idle), engine["expert_skew"], float(active), experts, per, read, padded)

    def _streams(self) -> None:
        board, d, engine = self.board, self.deployment, self.hardware.engine
        flop = board.line("Attention: seconds a FLOP", 1.0 / (
            self.hardware.peak(FORMATS["bf16"]) * self.scale * engine["attention_mfu"]), "s", "",
            "science")
        byte = board.line("Attention: seconds a byte", 1.0 / (
            self.hardware.bandwidth * engine["attention_mbu"]), "s", "", "science")
        work, read = x(0.0), x(0.0)
        mean = x(d.llm.state_bytes_per_sequence / d.layout.tensor)
        for own, count, stream in _merged(d):
            share = heads_per_rank(stream.heads, d.layout.tensor) / stream.heads
            size = stream.values_per_entry * stream.value_bytes(d.kv) * share
            label = f"{count} × {stream.name}" + (f" ({stream.window})" if stream.window else "")
            kept = kept_entries(stream, self.context)
            seen = kept if stream.attend is None else least(kept, float(stream.attend))
            entries = board.line(f"{label}: entries that a token reads", seen, "", "", "one")
            work = work + entries * (count * stream.decode_flops_per_pair / d.layout.tensor)
            read = read + entries * (count * size)
            if own:
                mean = mean + kept * (count * size)
            expand = None
            if stream.expand_flops_per_entry:
                expand = flop * (count * stream.expand_flops_per_entry / d.layout.tensor)
            self.streams.append(Stream(
                stream, flop * (count * stream.prefill_flops_per_pair / d.layout.tensor), expand,
                byte * (count * size)))
        self.mean_bytes = mean * stage_share(d.llm.layers, d.layout.pipeline)
        seconds = most(work * flop, read * byte)
        self.attention = board.line("Attention of one decoding sequence", seconds, "s", "",
                                    "science")
        self.decode = self.attention
        if d.llm.state_bytes_per_sequence:
            self._state(flop, byte)

    def _state(self, flop: X, byte: X) -> None:
        """Recurrent state, read and written once per sequence."""
        d = self.deployment
        work = sum(g.count * g.mixer.state_flops_per_token for g in d.llm.groups)
        self.state_token = self.board.line("State: compute per token",
                                           flop * (work / d.layout.tensor), "s", "", "science")
        self.state_prompt = self.board.line(
            "State: traffic per sequence",
            byte * (2.0 * d.llm.state_bytes_per_sequence / d.layout.tensor), "s", "", "science")
        self.decode = self.board.line(
            "Attention and state of one sequence",
            self.decode + most(self.state_token, self.state_prompt), "s", "", "science")

    def _links(self) -> None:
        """Collectives: seconds per token and per step; then the overheads of a step."""
        d, engine, board = self.deployment, self.hardware.engine, self.board
        layout, llm = d.layout, d.llm
        message = llm.hidden * ACTIVATION_BYTES
        per, once = x(0.0), x(0.0)
        if layout.tensor > 1:
            calls = sum(g.count * StepModel(d)._all_reduces(g) for g in llm.groups)
            wire = calls * all_reduce_wire_bytes(message, layout.tensor)
            per, once = self._link(per, once, wire, layout.tensor, calls)
        if layout.data > 1:
            copies = sum(g.count * g.feed_forward.active for g in llm.groups)
            calls = 2 * sum(g.count for g in llm.groups if g.feed_forward.experts)
            ranks = layout.tensor * layout.data
            sent = copies * llm.hidden * 3.0 / layout.tensor
            wire = all_to_all_wire_bytes(sent, ranks)
            per, once = self._link(per, once, wire, ranks, calls)
        if layout.pipeline > 1:
            hops = layout.pipeline - 1
            per, once = self._link(per, once, hops * message / layout.tensor, layout.gpus, hops)
        if isinstance(per.value, float) and per.text != "0":
            self.comm = board.line("Collectives: per token", per, "s", "", "science")
        moe = sum(g.count for g in llm.groups if g.feed_forward.experts)
        fixed = engine["step_ms"] * 0.001
        if llm.layers - moe:
            fixed = fixed + engine["layer_us"] * ((llm.layers - moe) * 1e-6)
        if moe:
            fixed = fixed + engine["moe_layer_us"] * (moe * 1e-6)
        for kinds, name in ((LATENT, "latent_layer_us"), (RECURRENT, "recurrent_layer_us")):
            layers = sum(g.count for g in llm.groups if g.mixer.kind in kinds)
            if layers:
                fixed = fixed + engine[name] * (layers * 1e-6)
        if once.text != "0":
            fixed = fixed + once
        self.fixed = board.line("Every step: overheads and starts of collectives", fixed, "s",
                                "step + layers + collectives", "science")

    def _link(self, per: X, once: X, wire: float, group: int, calls: float) -> tuple[X, X]:
        gpu, engine = self.deployment.gpu, self.hardware.engine
        kind = ("link_gb_s" if group <= gpu.link_domain_gpus
                else "pcie_gb_s" if group <= gpu.node_gpus else "nic_gb_s")
        slow = 2.0 if kind == "nic_gb_s" else 1.0
        taken = wire / (self.hardware.gpu[kind] * 1e9 * engine["link_efficiency"])
        started = engine["collective_latency_us"] * (calls * slow * 1e-6)
        return (taken if per.text == "0" else per + taken,
                started if once.text == "0" else once + started)

    def _usable(self, taken: X) -> tuple[X, str]:
        """What the engine fills [GiB] (``memory.usable_bytes``), and how its share counts."""
        share = self.hardware.engine["memory_utilization"]
        physical = self.hardware.gpu["memory_gib"]
        scope = self.deployment.profile.memory_scope
        if scope == "static":
            free = physical - self.budget.runtime_bytes / 2**30
            return (least(free * share + self.budget.beside_bytes / 2**30, physical),
                    "the share is of weights and cache; the rest lives beside them")
        if scope == "free":
            left = physical - taken
            return (taken + most(left, 0.0) * share + least(left, 0.0),
                    "the share is of what all else leaves")
        return physical * share, ""

    def _bytes_at(self, context: X) -> X:
        """Cache and state [B] of a sequence at a context (``memory.sequence_bytes_per_gpu``)."""
        d = self.deployment
        size = x(d.llm.state_bytes_per_sequence / d.layout.tensor)
        for own, count, stream in _merged(d):
            if own:
                share = heads_per_rank(stream.heads, d.layout.tensor) / stream.heads
                entry = stream.values_per_entry * stream.value_bytes(d.kv) * share
                size = size + kept_entries(stream, context) * (count * entry)
        return size * stage_share(d.llm.layers, d.layout.pipeline)

    def _memory(self, context: X, deviation: X) -> None:
        """The pool and the most sequences that it holds (``memory.max_running_sequences``)."""
        board, d, budget = self.board, self.deployment, self.budget
        board.heading("Memory of the fullest GPU")
        taken = board.line(
            "Weights, activations, runtime, graphs", (budget.weights_bytes + budget.beside_bytes)
            / 2**30, "GiB", "from the model, the layout and the profile", "two", "engine")
        usable, note = self._usable(taken)
        self.usable_gib = board.line("Usable by the engine", usable, "GiB", note, "two",
                                     name=f"usable_gib_{self.tag}")
        self.pool_gib = board.line("KV pool", self.usable_gib - taken, "GiB", "", "two",
                                   name=f"kv_pool_gib_{self.tag}")
        whole_answers = d.profile.reserves_answers
        each = self._bytes_at(context) if whole_answers else self.mean_bytes
        mean = board.line("Cache of one running sequence", each / 2**30, "GiB",
                          "with its whole answer" if whole_answers else "at the mean context",
                          "six")
        wide = self._bytes_at(context + deviation) / 2**30
        swing = board.line("Its spread × 2.326", 2.326 * most(wide - mean, 0.0), "GiB",
                           "the cache fits in 99 % of the time", "six")
        held = most(self.pool_gib, 0.0)
        root = (sqrt(swing ** 2 + 4.0 * mean * held) - swing) / (2.0 * most(mean, 1e-12))
        self.memory_cap = board.line("Most sequences that fit", when(
            self.pool_gib > 0.0, least(whole(root ** 2) * float(d.layout.data), 1e6), 0.0), "",
            "n m + 2.326 √n s ≤ pool", "count",
            name=f"most_sequences_{self.tag}")

    # -- a step ---------------------------------------------------------------------------------

    @property
    def ways(self) -> float:
        """Parts that a replica's decodes are split into."""
        return float(self.deployment.layout.data * self.deployment.layout.pipeline)

    def decodes(self, n: X) -> X:
        """Decodes of one rank and pipeline wave."""
        return n if self.ways == 1 else most(n / self.ways, 1.0)

    def filled(self, tokens: X) -> X:
        """Rows with tiles filled up, and the half-efficiency rows."""
        engine, tile = self.hardware.engine, self.hardware.engine["tile_tokens"]
        up = when(tokens > tile, round_up(tokens / tile) * tile, tokens)
        return up + engine["half_tokens"]

    def expert_seconds(self, one: Experts, tokens: X) -> tuple[X, X]:
        """Share of the experts that are touched, and a function's rows per touched expert."""
        every = tokens if self.deployment.layout.data == 1 else (
            tokens * float(self.deployment.layout.data))
        uneven = (1.0 + one.skew * (one.active / one.experts) * every) ** (
            -1.0 / most(one.skew, 1e-9))
        hit = 1.0 - when(one.skew > 0.0, uneven, exp(one.idle * every))
        return hit, every * one.active / most(hit * float(one.experts), 1e-12)

    def expert_time(self, one: Experts, tokens: X, hit: X, rows: X) -> X:
        """Time [s] of the experts, given the touched share and the rows of each."""
        full = most(rows, self.hardware.engine["tile_tokens"]) if one.padded else rows
        compute = one.per_row * one.active * tokens / most(rows, 1e-12) * self.filled(full)
        return most(compute, one.read_all * hit)

    def weights_time(self, filled: X, head: X | None) -> X:
        """Time [s] of the dense GEMMs; the LM head on its own rows, none without."""
        parts: list[X] = [g.seconds(filled) for g in self.gemms]
        if head is not None and self.head is not None:
            parts.append(self.head.seconds(head))
        found = parts[0]
        for part in parts[1:]:
            found = found + part
        return found

    @property
    def sequence(self) -> X:
        """Time [s] that every decoding sequence and every prompt of a step costs by itself."""
        return self.hardware.engine["sequence_us"] * 1e-6

    def per_decode(self) -> X:
        """Factor of the decodes: attention, collectives, and what a sequence costs by itself."""
        each = self.decode + self.sequence
        return each if self.comm.text == "0" else each + self.comm

    def prefill_attention(self, pairs: Sequence[X], kept: Sequence[X | None], tokens: X,
                          prompts: X | None = None) -> X:
        """Time [s] of the attention of prompts: pairs on one side, entries on the other."""
        work, read = x(0.0), x(0.0)
        for place, one in enumerate(self.streams):
            mine = one.pair * pairs[place]
            held = kept[place]
            if one.expand is not None and held is not None:
                mine = mine + one.expand * held
            entries = tokens / float(one.stream.stride) if one.stream.stride > 1 else tokens
            if held is not None:
                entries = held + entries
            work = mine if work.text == "0" else work + mine
            read = one.entry * entries if read.text == "0" else read + one.entry * entries
        if not self.streams:
            return x(0.0)
        once = most(work, read)
        return once if prompts is None else prompts * once


def _merged(d: Deployment) -> Iterable[tuple[bool, int, KvStream]]:
    """Streams that are alike, with their layers; whether they keep their entries."""
    found: dict[tuple[bool, KvStream], int] = {}
    for group in d.llm.groups:
        for own, streams in ((True, group.mixer.streams), (False, group.mixer.shared_streams)):
            for stream in streams:
                found[own, stream] = found.get((own, stream), 0) + group.count
    for (own, stream), count in found.items():
        yield own, count, stream


def kept_entries(stream: KvStream, context: X) -> X:
    """Cache entries of a context in one layer."""
    tokens = context if stream.window is None else least(context, float(stream.window))
    return tokens / float(stream.stride) if stream.stride > 1 else tokens


def prefill_pairs(stream: KvStream, tokens: X, cached: X) -> X:
    """Query-entry pairs of a prompt part (``planner.kv_cache.prefill_pairs``)."""
    if stream.chunked and stream.window is not None:
        return (_restarting(cached + tokens, stream.window)
                - _restarting(cached, stream.window))
    limits = [v for v in (stream.window, stream.attend and stream.attend * stream.stride) if v]
    if not limits:
        found = tokens * (cached + (tokens + 1.0) / 2.0)
        return found / float(stream.stride) if stream.stride > 1 else found
    cap = float(min(limits))
    growing = most(least(cap - cached, tokens), 0.0)
    found = growing * (cached + (growing + 1.0) / 2.0) + (tokens - growing) * cap
    return found / float(stream.stride) if stream.stride > 1 else found


def _restarting(position: X, window: int) -> X:
    """Sum of ((j - 1) mod w) + 1 up to a position."""
    size = float(window)
    turns = whole(position / size)
    rest = position - turns * size
    return turns * (size * (size + 1.0) / 2.0) + rest * (rest + 1.0) / 2.0
