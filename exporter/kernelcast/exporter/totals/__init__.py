"""Reports of processes, added up to series that never fall."""
