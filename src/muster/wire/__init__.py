"""How controller and agents talk: one gRPC stream an agent (DESIGN section 11)."""
