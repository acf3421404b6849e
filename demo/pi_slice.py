"""One of many tasks that add up to pi: a slice of the integral of 4/(1+x²) from 0 to 1."""

import os

STEPS = 1000


def main() -> None:
    index, tasks = int(os.environ["MUSTER_TASK_INDEX"]), int(os.environ["MUSTER_TASK_COUNT"])
    width = 1 / (tasks * STEPS)
    middles = ((index * STEPS + step + 0.5) * width for step in range(STEPS))
    print(sum(4 / (1 + x * x) for x in middles) * width)


if __name__ == "__main__":
    main()
