"""What a scaling group chooses: sequencer, selector, validators, hooks, or plug-ins for them."""
