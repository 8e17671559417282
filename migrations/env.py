"""Alembic's entry: the database of the Flask app, the tables of ``models``."""

from __future__ import annotations

from alembic import context
from flask import current_app

import models
import models.base

config = context.config
database = current_app.extensions["migrate"].db


def _render(kind: str, item: object, autogen: object) -> str | bool:
    # A migration must keep working when application code moves, so it names no type of ours.
    if kind == "type" and isinstance(item, models.base.UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def _options() -> dict[str, object]:
    arguments = current_app.extensions["migrate"].configure_args
    return {**arguments, "target_metadata": models.Base.metadata, "render_as_batch": True,
            "render_item": _render}


def run_offline() -> None:
    """Print the SQL instead of running it."""
    url = database.engine.url.render_as_string(hide_password=False)
    context.configure(url=url, literal_binds=True, **_options())
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    """Migrate the app's database."""
    with database.engine.connect() as connection:
        context.configure(connection=connection, **_options())
        with context.begin_transaction():
            context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
