"""The control plane: one engine, and the modules in which entities declare their rules to it. It
has no threads and waits for nothing."""
