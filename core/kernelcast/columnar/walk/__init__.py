"""The compiled functions that read an OTLP message, from its first byte to its points.

`entries` has those that Python calls. Below it: `messages` down to a container of points, `points`, `histograms` and
`summaries` for one point, `lookup` and `intern` for its series, `stream` for protobuf's wire format. All get the
whole state as `WalkState`, and return a status below 0 (`layout.MessageStatus`) where they cannot go on. `b` is the
array of bytes, `p` a position in it, `end` the end of the enclosing message: no function reads at or beyond it.
"""
