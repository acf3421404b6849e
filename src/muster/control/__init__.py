"""The control plane: one engine, and what each entity declares to it. No threads, no waiting."""
