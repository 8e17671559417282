"""Steps with the passes of a draft model, as a term beside those of the model that verifies.

:class:`planner.steps.StepTimes` gives the same seconds; here they come with FLOPs and bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.roofline import Step, StepBatch, StepModel, Term
from planner.steps import draft_passes

Array = NDArray[np.float64]


def drafted_step(model: StepModel, batch: StepBatch) -> Step:
    """A step (:meth:`planner.roofline.StepModel.step`) with a term ``draft_model``.

    The first pass of the draft takes the prompt parts along with the decodes, the others are of
    decodes alone: vLLM ``v1/spec_decode/eagle.py``, ``SpecDecodeBaseProposer.propose``. Without a
    draft model, or with one token per decode, it is the step itself.
    """
    step, d = model.step(batch), model.deployment
    passes, drafting = draft_passes(d, batch.tokens_per_decode - 1.0), d.drafting
    if not passes or drafting is None:
        return step
    draft, stages = StepModel.of(drafting), d.layout.pipeline
    running = np.asarray(batch.decodes, dtype=float)
    wave = np.where(running > 0.0, np.maximum(running / stages, 1.0), 0.0)
    own = np.maximum(running / d.layout.data, 1.0)
    waves = own / np.maximum(own / stages, 1.0)
    first = replace(batch, decodes=wave, tokens_per_decode=1.0)
    later = replace(first, prefill_tokens=0.0, prefill_sequences=0.0, cached=0.0, logits=None)
    again = np.where(running > 0.0, passes * waves - 1.0, 0.0)
    # Figures of a step are of one of its GPUs; those of the draft are spread over all stages.
    term = _one_term(draft.step(first), draft.step(later), again, 1.0 / stages)
    return replace(step, terms=(*step.terms, term))


def _one_term(first: Step, later: Step, again: Array, share: float) -> Term:
    """A pass and ``again`` later ones as one term; its larger side stands for its seconds."""
    def total(name: str) -> Array:
        once, more = (np.asarray(sum(np.asarray(getattr(t, name)) for t in step.terms))
                      for step in (first, later))
        return np.asarray(once + again * more)

    seconds, compute, memory = total("seconds"), total("compute_s"), total("memory_s")
    bound = compute > memory
    return Term("draft_model", total("flops") * share, total("bytes") * share,
                np.where(bound, seconds, np.minimum(compute, seconds)),
                np.where(bound, np.minimum(memory, seconds), seconds), np.zeros(()))
