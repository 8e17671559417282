"""Means over the prompts and over the gaps of the answers."""

from __future__ import annotations

from planner.workbook.live.expr import X, least, most, square, total, when, x
from planner.workbook.live.prompt_tables import PromptTables
from planner.workbook.live.step import kept_entries, prefill_pairs
from planner.workload import QUARTERS, REFERENCE_TOKENS


class PromptMoments(PromptTables):
    """The same with what the queues need of them."""

    def write_moments(self) -> None:
        """Means over the prompts that the queue needs."""
        b, share = self.board, self.prompt.share.all
        new = self.new.all
        self.moments["new"] = b.line("New prompt tokens, mean", total(share * new), "tokens", "",
                                     "one")
        self.moments["new2"] = b.line("New prompt tokens, mean of squares",
                                      total(share * square(new)), "tokens²", "", "count")
        self.moments["new3"] = b.line("New prompt tokens, mean of cubes",
                                      total(share * new ** 3), "tokens³", "", "science")
        self.moments["longest"] = b.line("Prompt of a token at random",
                                         self.moments["new2"] / self.moments["new"], "tokens",
                                         "E[p²] / E[p]", "one")
        self.moments["cached"] = b.line("Cached tokens before it", total(
            share * new * (self.prompt.tokens.all - new)) / self.moments["new"], "tokens", "",
            "one")
        for power, label in ((1, "mean"), (2, "mean of squares"), (3, "mean of cubes")):
            seconds = self.prefill.all if power == 1 else self.prefill.all ** power
            self.moments[f"s{power}"] = b.line(f"Prefill alone, {label}", total(share * seconds),
                                               "s" + ("", "²", "³")[power - 1], "", "science")
        if self.budget is not None:
            self._further()

    def _further(self) -> None:
        """What a prompt takes beyond that of its tokens at their mean depth
        (``chunked.Columns``), and its moments."""
        b, m, share, new = self.board, self.moments, self.prompt.share.all, self.new
        longest = most(m["longest"], 1.0)
        before = m["cached"] + longest
        streams = [s.stream for s in self.step.streams]

        def attention(label: str, cached: X) -> X:
            return b.line(f"Attention of such a prompt, {label}", self.step.prefill_attention(
                [prefill_pairs(s, longest, cached) for s in streams],
                [kept_entries(s, cached) for s in streams], longest), "s", "", "six")

        with_ = attention("as many tokens before it", before)
        without = attention("none before it", x(0.0))
        each = b.line("Of each token before a token", (with_ - without) / (longest * before), "s",
                      "", "science")
        deeper = self.prompt.tokens.each - new.each / 2.0 - (m["cached"] + longest / 2.0)
        further = self.beside("Beyond the mean depth [s]", each * new.each * deeper, "six")
        self.extra["further"] = further
        for name, text, e in (
                ("further_1", "Beyond the mean depth, times tokens, mean", new.all * further.all),
                ("further_2", "Beyond the mean depth, mean of squares", square(further.all)),
                ("further_11", "Beyond the mean depth, times squares of tokens, mean",
                 square(new.all) * further.all),
                ("further_12", "Beyond the mean depth squared, times tokens, mean",
                 new.all * square(further.all)),
                ("further_3", "Beyond the mean depth, mean of cubes", further.all ** 3)):
            m[name] = b.line(text, total(share * e), "", "", "science")

    def write_gaps(self) -> None:
        """Gaps between the tokens of the answers, and of the reference answers
        (``workload.Gaps``)."""
        b, share = self.board, self.output.share.all
        self.moments["overlap"] = b.line(
            "Answers that run together", total(share * self.output.tokens.all * (
                2.0 - 2.0 * self.output.reached.all + share)) / self.output.mean, "",
            "E[min(o, o')] / E[o]")
        b.heading("Gaps between tokens", "Of the answers, and of answers of the same shape with a "
                  f"mean of {REFERENCE_TOKENS:g} tokens, which size a pool too.")
        factor = b.line("Reference answers over the answers", REFERENCE_TOKENS / self.output.mean)
        for tag, scale in (("own", x(1.0)), ("reference", factor)):
            tokens = self.output.tokens.all * scale
            several = b.line(f"Share with several tokens, {tag}", total(
                share * (tokens >= 1.5)), "", "", "percent1")
            kept = when(several > 0.0, x(1.5), x(0.0))
            kept = b.line(f"Tokens that count, {tag}, from", kept, "tokens", "", "one")
            gaps = tokens - 1.0 + (tokens < 2.0) * (2.0 - tokens)
            counted = share * (tokens >= kept) / when(several > 0.0, several, 1.0)
            self.moments[f"gaps_{tag}"] = b.line(f"Gaps, {tag}, mean", total(counted * gaps), "",
                                                 "", "one")
            for power in (1, 2):
                inverse = 1.0 / gaps if power == 1 else 1.0 / square(gaps)
                self.moments[f"inverse{power}_{tag}"] = b.line(
                    f"1 / gaps{'' if power == 1 else '²'}, {tag}, mean", total(counted * inverse),
                    "", "", "science")
            if tag == "own":
                self._write_quarters(gaps, when(several > 0.0, several, 1.0), kept)

    def _write_quarters(self, gaps: X, several: X, kept: X) -> None:
        """The same of each quarter of short answers, of others those of all
        (``Lengths.quarters``)."""
        b, m, output, part = self.board, self.moments, self.output, 1.0 / QUARTERS
        m["short"] = b.line("Shorter than the reference answers", 1.0 * (
            output.mean < REFERENCE_TOKENS), "", "1 is yes", "count")
        reached = self.beside("Answers with several tokens, reached", most(
            output.reached.each - (1.0 - several), 0.0) / several, "small")
        before = reached.each - output.share.each * (output.tokens.each >= kept) / several
        for k in range(QUARTERS):
            own = self.beside(f"Of quarter {k + 1}", least(
                most(reached.each - k * part, 0.0), part) - least(
                most(before - k * part, 0.0), part), "small")
            for name, text, of in (("gaps", "Gaps", gaps), ("inverse1", "1 / gaps", 1.0 / gaps),
                                   ("inverse2", "1 / gaps²", 1.0 / square(gaps))):
                m[f"{name}_quarter{k + 1}"] = b.line(
                    f"{text}, quarter {k + 1}, mean", when(
                        m["short"] > 0.0, total(own.all * of) / part, m[f"{name}_own"]), "", "",
                    "science")
