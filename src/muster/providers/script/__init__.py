"""Machines that an operator's executable makes: JSON in, JSON out."""
