"""The contract between the parts: topics, metrics, frames, events, errors. Standard library only."""
