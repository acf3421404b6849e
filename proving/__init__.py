"""The proving ground of Muster, which is no part of the product: the real control plane among
hollow machines, under virtual time.

``hollow`` is the world around the controller, ``swarm`` runs it from seeds and judges what happens,
and ``mutants`` are deliberate bugs that the seeds must find.
"""
