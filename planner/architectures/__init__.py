"""From published model configurations to :class:`planner.llm.Llm`.

One module per family group; a family is a function from the fields of a config to the layers it
describes. Nothing here reads files or the network.
"""

from planner.architectures.build import from_config, slug_of, supported
from planner.architectures.handmade import from_fields

__all__ = ["from_config", "from_fields", "slug_of", "supported"]
