"""The Flask application: ``flask --app app run``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from flask import Flask

from planner.api import register_api
from planner.api.background import register_jobs
from planner.api.observe import register_observation
from planner.api.problems import register_problems
from planner.cli import register_commands
from planner.extensions import db, migrate, prepare_sqlite
from planner.settings import database_url, load_settings, unknown_settings


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Build the application.

    Parameters
    ----------
    config : mapping, optional
        Overrides of settings (see ``planner.settings``) and of Flask's own configuration.
    """
    app = Flask("planner", static_folder=None)
    try:
        settings = load_settings(config)
    except ValueError as error:  # a server that cannot start says why in one line
        raise SystemExit(f"error: {error}") from None
    app.config.update(settings)
    app.config["MAX_CONTENT_LENGTH"] = settings["PLANNER_MAX_BODY_BYTES"]
    app.config["SQLALCHEMY_ENGINES"] = {"default": database_url(settings)}
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    db.init_app(app)
    migrate.init_app(app, db)
    with app.app_context():
        prepare_sqlite(db.engine, settings["PLANNER_SQLITE_BUSY_MS"])
    try:
        register_jobs(app)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    register_observation(app)
    for sentence in unknown_settings():
        structlog.get_logger().warning("unknown_setting", message=sentence)
    register_api(app)
    register_problems(app)
    register_commands(app)
    return app
