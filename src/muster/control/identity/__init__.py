"""Domains, projects and users, and the tokens by which they are known."""
