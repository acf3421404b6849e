"""The parts that a scaling group chooses: sequencer, selector, validators and hooks, built in or
plug-ins."""
