"""Who may do what: domains, projects, users, and the tokens by which they are known."""
