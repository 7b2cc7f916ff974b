"""Search of a space by ask and tell: a sweep of small spaces, a model-guided search of large ones.

A campaign asks for a configuration, and reports its cost: its time over the start's. Configurations are known by
their ordinal (`space.Space`). A search is for one thread.
"""

from kernelcast.tuning.search.choice import (
    OWN,
    SWEEP_LIMIT,
    Search,
    SearchMaker,
    named_search,
    search_for,
    search_maker,
)
from kernelcast.tuning.search.given import GivenSearch
from kernelcast.tuning.search.guided import GuidedSearch
from kernelcast.tuning.search.sweep import Sweep

__all__ = [
    "OWN",
    "SWEEP_LIMIT",
    "GivenSearch",
    "GuidedSearch",
    "Search",
    "SearchMaker",
    "Sweep",
    "named_search",
    "search_for",
    "search_maker",
]
