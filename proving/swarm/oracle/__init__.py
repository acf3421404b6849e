"""The oracle: the states that tasks and sessions must reach, derived from the true ends of their
processes and from the rules alone: (design: Budgets), (design: Verdicts on gangs), (design: Job
derivation). It shares no code with the control plane's own judgement.
"""
