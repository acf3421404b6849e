"""The built-in reverse proxy: requests to deployments, handed to their replicas.

It is a process of its own, which outlives the controller. ``proxy`` puts the parts together;
``front`` is a client's connection, ``exchange`` one request with its answer, ``replica`` a
connection to a replica.
"""
