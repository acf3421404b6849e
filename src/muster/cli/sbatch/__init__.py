"""Batch scripts of Slurm as jobs: the header, the options, and the variables that scripts read.

All of it but ``cli/commands/sbatch.py`` is pure: what the caller's machine and the cluster have is
given (``translation.Setting``).
"""
