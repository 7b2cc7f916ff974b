"""Delta points made cumulative between decoding and the store, exactly, across restarts."""
