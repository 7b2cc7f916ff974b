"""What matters now, from a `/metrics` page and its recent past, drawn as text for a terminal and as HTML."""
