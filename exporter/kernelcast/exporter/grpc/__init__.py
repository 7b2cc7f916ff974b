"""gRPC to services of this node, with messages made from field numbers."""
