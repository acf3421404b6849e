"""Services as balancers outside Muster are told of them: HAProxy, etcd."""
