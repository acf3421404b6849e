"""The kernel supervisor: launches and reaps kernels, and outlives the agent that asks for them.

One process for each agent, apart from it, so that kernels survive an agent restart and their exit
codes are still known afterwards (design: Agents). The agent starts it with `launch.launch` and
talks JSON lines to it (`protocol`); a journal carries what happened across everybody's death.

It is small, so that a thousand supervisors cost little and a spawn is cheap: it uses the standard
library alone, nothing else of Muster, one thread and one epoll loop. For the same reason its files
use `os` and not `pathlib`, which costs several microseconds a path in a loop that has 300 for a
whole kernel.
"""
