"""Units of work in a batch of PyTorch's `DataLoader`: its samples, where that number is certain."""

from typing import Any


def batch_items(iterator: Any, batch: Any) -> int:
    """Return the samples of a batch that a loader has put together; 0 where that is not known.

    It is the first dimension of the batch's first tensor. A loader that puts nothing together
    gives items of the dataset, and a list of as many entries as the loader's batch has is a batch of separate samples.

    Args:
        iterator: The loader's iterator.
        batch: The batch that it returned.
    """
    try:
        kind = type(batch)
        if kind is list or kind is tuple:
            items: int = batch[0].shape[0]
        elif kind is dict or not hasattr(batch, "shape"):
            items = next(iter(batch.values())).shape[0]
        else:
            items = batch.shape[0]
        if items == (sampler := iterator._index_sampler).batch_size:  # noqa: SLF001
            return items
        if kind is list and len(batch) == sampler.batch_size:
            return len(batch)
        return items if iterator._auto_collation and items < sampler.batch_size else 0  # noqa: SLF001, TRY300
    except Exception:  # noqa: BLE001  a batch or a sampler of the program's own kind: the size is not known
        return 0
