"""Units of work in a batch of PyTorch's `DataLoader`: its samples, where that number is certain."""

from typing import Any


def batch_items(iterator: Any, batch: Any) -> int:
    """Return the samples of a batch that a loader has put together; 0 where that is not known.

    It is the first dimension of the batch's first tensor. A loader that puts nothing together gives what the dataset
    does, and a list of as many entries as the loader's batch has is a batch of separate samples.

    Args:
        iterator: The loader's iterator.
        batch: What it returned.
    """
    try:
        if not iterator._auto_collation:  # noqa: SLF001
            return 0
        wanted: int | None = getattr(iterator._index_sampler, "batch_size", None)  # noqa: SLF001
        shape = getattr(batch, "shape", None)
        if shape is None:
            if type(batch) is dict or hasattr(batch, "keys"):
                first = next(iter(batch.values()))
            else:
                first = batch[0]
                if wanted is not None and type(batch) is list and len(batch) == wanted:
                    return wanted
            shape = first.shape
        items: int = shape[0]
    except Exception:  # noqa: BLE001  a batch of the program's own kind: its size is not known
        return 0
    return items if wanted is None or items <= wanted else 0
