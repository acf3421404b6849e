"""Deployments and their routes: replicas that stay up, and the addresses at which they serve."""
