"""``/models``: language models; counts are derived from the architecture, never typed in."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from flask import Response
from flask.views import MethodView
from marshmallow import ValidationError, fields, validates_schema
from marshmallow.validate import Length
from sqlalchemy import String, cast, func, select

from models import LlmRow
from planner.api.blueprint import ApiBlueprint
from planner.api.fields import (
    NAME,
    Choice,
    Flag,
    Text,
    Whole,
    date_field,
    name_field,
    slug_field,
)
from planner.api.paging import SearchQuery, matches, page_schema
from planner.api.problems import Problem
from planner.api.resource import Resource
from planner.api.validation import StrictSchema
from planner.errors import PlannerError
from planner.extensions import db
from planner.llm import Llm, from_record

blp = ApiBlueprint("models", __name__, "Language models")
_WEIGHTS = ("bf16", "fp8", "int8", "int4", "fp4")


_BIG = 1_000_000_000_000


class ModelInSchema(StrictSchema):
    """A model to add: its ``config.json`` under ``hf_config``, or the sizes of its layers."""

    slug = slug_field(required=True)
    name = Text(longest=200, shortest=1)
    hf_id = name_field(allow_none=True)
    aliases = fields.List(name_field(), validate=Length(max=100))
    source = Text(longest=2000)
    as_of = date_field()
    hf_config = fields.Dict(keys=fields.String(), metadata={
        "description": "The model's config.json; an unknown architecture is refused by name"})
    hidden = Whole(lowest=1, highest=_BIG)
    layers = Whole(lowest=1, highest=_BIG)
    heads = Whole(lowest=1, highest=_BIG)
    kv_heads = Whole(lowest=1, highest=_BIG, metadata={"description": "Default: heads"})
    head_dim = Whole(lowest=1, highest=_BIG, metadata={"description": "Default: hidden / heads"})
    intermediate = Whole(lowest=1, highest=_BIG)
    vocab = Whole(lowest=1, highest=_BIG)
    max_context = Whole(lowest=1, highest=_BIG)
    tied_embeddings = Flag()
    gated = Flag(metadata={"description": "Three FFN matrices (default), or two"})
    experts = Whole(lowest=1, highest=_BIG)
    active_experts = Whole(lowest=1, highest=_BIG)
    moe_intermediate = Whole(lowest=1, highest=_BIG)
    shared_experts = Whole(lowest=0, highest=_BIG)
    dense_layers = Whole(lowest=0, highest=_BIG)
    sliding_window = Whole(lowest=1, highest=_BIG)
    full_every = Whole(lowest=1, highest=_BIG)
    dtype = Choice(("bf16", "fp16", "fp32"))

    @validates_schema
    def _one_way(self, data: dict[str, Any], **_: Any) -> None:
        sizes = sorted(set(data) - _IDENTITY - {"hf_config"})
        if "hf_config" in data and sizes:
            raise ValidationError("give hf_config or sizes, not both", sizes[0])


_IDENTITY = {"slug", "name", "hf_id", "aliases", "source", "as_of"}


class ModelSchema(StrictSchema):
    """A model with what its architecture implies."""

    slug = fields.String(required=True)
    name = fields.String(required=True)
    hf_id = fields.String(required=True, allow_none=True)
    aliases = fields.List(fields.String(), required=True)
    architecture = fields.String(required=True)
    total_params = fields.Integer(required=True)
    active_params = fields.Integer(required=True)
    kv_bytes_per_token = fields.Float(required=True, metadata={"description": "bf16, all layers"})
    kv_bytes_per_token_beyond_window = fields.Float(required=True)
    kv_window_cap_bytes = fields.Float(required=True)
    state_bytes_per_sequence = fields.Integer(required=True)
    weight_bytes = fields.Dict(keys=fields.String(), values=fields.Float(), required=True)
    max_context = fields.Integer(required=True, allow_none=True)
    layers = fields.Integer(required=True)
    hidden = fields.Integer(required=True)
    vocab = fields.Integer(required=True)
    native_weights = fields.String(required=True)
    native_kv = fields.String(required=True)
    published = fields.Dict(required=True)
    source = fields.String(required=True)
    as_of = fields.String(required=True)


ModelPage = page_schema("ModelPage", ModelSchema)


def derived(llm: Llm) -> dict[str, Any]:
    """What an architecture implies; counts in parameters, sizes in bytes."""
    weights = {name: llm.weight_bytes(name) for name in _WEIGHTS}
    return {
        "total_params": llm.total_params,
        "active_params": llm.active_params,
        "kv_bytes_per_token": llm.kv_bytes_per_token(),
        "kv_bytes_per_token_beyond_window": llm.kv_bytes_per_token_beyond_window(),
        "kv_window_cap_bytes": llm.kv_window_cap_bytes(),
        "state_bytes_per_sequence": llm.state_bytes_per_sequence,
        "weight_bytes": {**weights, "native": llm.weight_bytes(llm.native_precision)},
        "max_context": llm.max_context,
        "layers": llm.layers,
        "hidden": llm.hidden,
        "vocab": llm.vocab,
        "native_weights": llm.native_precision,
        "native_kv": llm.native_kv,
    }


@lru_cache(maxsize=2048)
def _derived_of(slug: str, version: int, updated_at: Any) -> dict[str, Any]:
    row = db.session.get_one(LlmRow, slug)
    return derived(from_record(row.record))


def document(row: LlmRow) -> dict[str, Any]:
    """A row as the API shows it."""
    return {"slug": row.slug, "name": row.name, "hf_id": row.hf_id, "aliases": row.aliases,
            "architecture": row.architecture,
            **_derived_of(row.slug, row.version, row.updated_at),
            "published": row.published, "source": row.source, "as_of": row.as_of}


models = Resource(LlmRow, "slug", "model", "models.Model", document)


def build_llm(data: dict[str, Any]) -> Llm:
    """The architecture of a posted model.

    Raises
    ------
    PlannerError
        With the pointer of the field, under ``/hf_config`` where that was given.
    """
    from planner import architectures  # imported late: it is the larger part of the start-up

    names = {"slug": data["slug"], "hf_id": data.get("hf_id"), "name": data.get("name")}
    if "hf_config" in data:
        return architectures.from_config(data["hf_config"], **names)
    sizes = {k: v for k, v in data.items() if k not in _IDENTITY}
    try:
        return architectures.from_fields({**sizes, **{k: v for k, v in names.items() if v}})
    except PlannerError as error:
        error.pointer = error.pointer.removeprefix("/model")
        raise


def columns(data: dict[str, Any]) -> dict[str, Any]:
    """Columns of a row from a posted model."""
    llm = _clean(build_llm(data), data)
    return {"slug": data["slug"], "name": data.get("name") or llm.name, "hf_id": llm.hf_id,
            "aliases": data.get("aliases", []), "architecture": llm.architecture,
            "record": llm.to_record(), "published": {}, "source": data.get("source", ""),
            "as_of": data.get("as_of", "")}


def _clean(llm: Llm, data: dict[str, Any]) -> Llm:
    """The same model under a sane identity: ``_name_or_path`` of a config may be anything."""
    hf_id = llm.hf_id if llm.hf_id and NAME.fullmatch(llm.hf_id) else None
    return replace(llm, hf_id=hf_id, name=llm.name if hf_id else data.get("name", data["slug"]))


def refuse_taken_names(data: dict[str, Any], own: str) -> None:
    """409 when another model already answers to one of the names."""
    wanted = {n.lower(): p for n, p in _names(data)}
    query = select(LlmRow.slug, LlmRow.hf_id, LlmRow.aliases).where(LlmRow.slug != own)
    for slug, hf_id, aliases in db.session.execute(query):
        for name in (slug, hf_id or slug, *aliases):
            if name.lower() in wanted:
                raise Problem(409, "already-exists", f"{name!r} is a name of model {slug!r}",
                              [{"pointer": wanted[name.lower()], "message": "is taken"}])


def _names(data: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [(data["slug"], "/slug")]
    if data.get("hf_id"):
        pairs.append((data["hf_id"], "/hf_id"))
    return pairs + [(a, f"/aliases/{i}") for i, a in enumerate(data.get("aliases", []))]


def resolve(name: str) -> str:
    """The slug of a model named by slug, Hugging Face id or alias; the name itself if unknown."""
    wanted = name.lower()
    if "\x00" in name or db.session.get(LlmRow, wanted) is not None:
        return wanted
    found = db.session.scalar(select(LlmRow.slug).where(func.lower(LlmRow.hf_id) == wanted))
    if found:
        return found
    # Aliases are a JSON list; the text match only narrows down what is compared exactly.
    likely = select(LlmRow).where(matches(name, cast(LlmRow.aliases, String)))
    for row in db.session.scalars(likely):
        if wanted in (a.lower() for a in row.aliases):
            return row.slug
    return name


@blp.route("/models")
class Models(MethodView):
    """All models."""

    @blp.read(ModelPage, query=SearchQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List models."""
        query = select(LlmRow).order_by(LlmRow.slug)
        if "q" in args:
            query = query.where(matches(args["q"], LlmRow.slug, LlmRow.name, LlmRow.hf_id,
                                        LlmRow.architecture, cast(LlmRow.aliases, String)))
        return models.list(query, args)

    @blp.create(ModelInSchema, ModelSchema, 409)
    def post(self, data: dict[str, Any]) -> Response:
        """Add a model from its config.json or its fields."""
        row = columns(data)
        refuse_taken_names(row, own="")
        return models.create(row)


@blp.route("/models/<path:slug>")
class Model(MethodView):
    """One model, by slug, Hugging Face id or alias."""

    @blp.read(ModelSchema, 404)
    def get(self, slug: str) -> Response:
        """Show a model."""
        return models.read(resolve(slug))

    @blp.replace(ModelInSchema, ModelSchema, lambda slug: models.require_read(resolve(slug)))
    def put(self, data: dict[str, Any], slug: str) -> Response:
        """Replace a model."""
        key = resolve(slug)
        models.find(key)
        row = columns(data)
        refuse_taken_names(row, own=key)
        return models.replace(key, row)

    @blp.remove()
    def delete(self, slug: str) -> Response:
        """Delete a model."""
        return models.delete(resolve(slug))
