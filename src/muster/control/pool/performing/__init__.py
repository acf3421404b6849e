"""The calls of providers, on threads of their own."""
