"""Pure decisions about deployments (design: Deployments and routes)."""
