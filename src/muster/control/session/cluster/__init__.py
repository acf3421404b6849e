"""The cluster as placement sees it: scaling groups and workloads, in step with the mirror."""
