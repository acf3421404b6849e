"""What holds in every run (design: Simulation), a module for each thing that is watched."""
