"""What a queue runs on: one module per engine, each behind the same verbs."""
