"""Small typed errors; the API turns each into one problem type with a JSON pointer."""

from __future__ import annotations


class PlannerError(ValueError):
    """Base of all errors that the input caused.

    Parameters
    ----------
    message : str
        What was wrong and what is allowed, in one sentence.
    pointer : str
        JSON pointer (RFC 6901) of the field at fault, ``""`` when the whole document is.
    """

    code = "invalid-request"
    title = "The request cannot be used"

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


class InvalidValue(PlannerError):
    """A field has a value outside its range or of the wrong kind."""

    code = "invalid-value"
    title = "A field has an invalid value"


class DoNotGoTogether(InvalidValue):
    """Fields that are allowed by themselves and contradict one another."""


class NotInCatalog(PlannerError):
    """A GPU, model, engine or price that the request names is not in the catalog."""

    code = "not-in-catalog"
    title = "The catalog has no such entry"


class SloUnreachable(PlannerError):
    """Measured points of which none is within the latency targets."""

    code = "slo-unreachable"
    title = "No measured point meets the targets"


class UnknownArchitecture(PlannerError):
    """A config.json whose architecture has no rules here; it is never guessed."""

    code = "unknown-architecture"
    title = "The model architecture is not known"


class NoDecodePhase(PlannerError):
    """An encoder-only or embedding model: it writes no tokens, so it is not planned."""

    code = "no-decode-phase"
    title = "The model has no decode phase"


class IncompleteConfig(PlannerError):
    """A known architecture whose config.json lacks a field without a documented default."""

    code = "incomplete-config"
    title = "The model configuration lacks a field"


class ContextTooLong(PlannerError):
    """Prompt plus output exceeds what the model was built for."""

    code = "context-too-long"
    title = "The workload exceeds the model's maximum context"


class UnsupportedPrecision(PlannerError):
    """A precision name that the planner does not know, or that the engine cannot run."""

    code = "unsupported-precision"
    title = "The precision cannot be used"
