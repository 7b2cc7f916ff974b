"""The tuner against a recording: an oracle process measures, another process tunes without access to the recording."""
