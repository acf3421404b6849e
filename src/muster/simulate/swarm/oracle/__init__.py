"""The oracle: what must become of tasks and sessions, told from what truly happened to their
processes, and from the rules alone: (design: Budgets), (design: Verdicts on gangs), (design: Job
derivation). It shares no code with the control plane's own judgement.
"""
