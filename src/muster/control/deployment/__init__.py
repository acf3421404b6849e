"""Deployments and their routes: services that stay up (design: Deployments and routes)."""
