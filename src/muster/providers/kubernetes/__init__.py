"""Kubernetes: agents as pods, made and deleted through the API server."""
