"""Events about tuning besides hints and outcomes: orders, approvals, pauses, policies, experience of nodes."""
