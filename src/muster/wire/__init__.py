"""How controller and agents talk: one gRPC stream an agent (design: Agents)."""
