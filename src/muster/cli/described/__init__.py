"""Records as `muster show` tells them, a module a kind."""
