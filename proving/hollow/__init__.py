"""Hollow twins of the outside world, under virtual time: machines, agents, supervisors, a network.

They follow the agents' protocol (design: Agents) without processes, sockets or files, and fail as
real ones do: a machine reboots, a supervisor is killed, a stream is cut with messages on their way.
"""
