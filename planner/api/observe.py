"""One JSON log line and one set of metrics a request."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import uuid

import structlog
from flask import Flask, Response, g, request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
log = structlog.get_logger()


def register_observation(app: Flask) -> None:
    """Log and count every request of an app, and serve ``/metrics``."""
    _configure_log(app.config["PLANNER_LOG_LEVEL"], app.config["PLANNER_LOG_FORMAT"])
    registry = CollectorRegistry()
    labels = ["method", "endpoint", "status"]
    count = Counter("planner_requests", "Requests", labels, registry=registry)
    spent = Histogram("planner_request_seconds", "Time to answer", labels[:2], registry=registry)
    app.before_request(_start)

    @app.after_request
    def _finish(response: Response) -> Response:
        seconds = time.perf_counter() - g.get("started", time.perf_counter())
        endpoint = request.endpoint or "none"
        count.labels(request.method, endpoint, response.status_code).inc()
        spent.labels(request.method, endpoint).observe(seconds)
        response.headers["X-Request-Id"] = g.get("request_id", "")
        log.info("request", method=request.method, path=request.path,
                 status=response.status_code, ms=round(seconds * 1e3, 2))
        return response

    app.add_url_rule("/metrics", "metrics", lambda: _metrics(registry))


def _start() -> None:
    """Give the request an id, the caller's own where it sent a sane one."""
    sent = request.headers.get("X-Request-Id", "")
    g.request_id = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
    g.started = time.perf_counter()
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def _metrics(registry: CollectorRegistry) -> Response:
    # Under several worker processes each keeps its counts in files of a shared directory.
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _configure_log(level: str, form: str) -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]),
        # Looked up at each line: test runners and daemons replace the stream.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
