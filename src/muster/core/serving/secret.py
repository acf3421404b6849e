"""The secret of a deployment, by which its programs know the requests that came through a proxy or
a prober (design: Deployments and routes).

It proves where a request comes from, on machines where ports are open to kernels of other users.
"""

SECRET_HEADER = "Muster-Secret"
"""The header of requests that carries it."""
SECRET_VARIABLE = "MUSTER_SECRET"
"""The variable in the environment of replicas that holds it."""
