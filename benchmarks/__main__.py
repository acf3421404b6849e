"""`make bench`: the short form of every benchmark. `make bench B=b1`: the full form of one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import (
    b1,
    b2,
    b3,
    b5,
    b6,
    commands,
    gangs,
    health,
    probes,
    proxy,
    publishing,
    recovery,
    results,
    shares,
)
from benchmarks.results import Results
from rich.console import Console

PLAIN_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Benchmark:
    title: str
    full: Callable[[], Results]
    short: Callable[[], Results]


BENCHMARKS = {
    "b1": Benchmark(b1.TITLE, lambda: b1.measure(b1.FULL), lambda: b1.measure(b1.SHORT)),
    "b2": Benchmark(b2.TITLE, lambda: b2.measure(b2.FULL), lambda: b2.measure(b2.SHORT)),
    "b3": Benchmark(b3.TITLE, lambda: b3.measure(b3.FULL), lambda: b3.measure(b3.SHORT)),
    "b5": Benchmark(b5.TITLE, lambda: b5.measure(b5.FULL), lambda: b5.measure(b5.SHORT)),
    "b6": Benchmark(b6.TITLE, lambda: b6.measure(b6.FULL), lambda: b6.measure(b6.SHORT)),
    "commands": Benchmark(
        commands.TITLE,
        lambda: commands.measure(commands.FULL),
        lambda: commands.measure(commands.SHORT),
    ),
    "gangs": Benchmark(
        gangs.TITLE, lambda: gangs.measure(gangs.FULL), lambda: gangs.measure(gangs.SHORT)
    ),
    "health": Benchmark(
        health.TITLE, lambda: health.measure(health.FULL), lambda: health.measure(health.SHORT)
    ),
    "recovery": Benchmark(
        recovery.TITLE,
        lambda: recovery.measure(recovery.FULL),
        lambda: recovery.measure(recovery.SHORT),
    ),
    "probes": Benchmark(
        probes.TITLE, lambda: probes.measure(probes.FULL), lambda: probes.measure(probes.SHORT)
    ),
    "proxy": Benchmark(
        proxy.TITLE, lambda: proxy.measure(proxy.FULL), lambda: proxy.measure(proxy.SHORT)
    ),
    "publishing": Benchmark(
        publishing.TITLE,
        lambda: publishing.measure(publishing.FULL),
        lambda: publishing.measure(publishing.SHORT),
    ),
    "shares": Benchmark(
        shares.TITLE, lambda: shares.measure(shares.FULL), lambda: shares.measure(shares.SHORT)
    ),
}


def main(arguments: list[str]) -> None:
    if "-h" in arguments or "--help" in arguments:
        sys.stdout.write(f"{__doc__}\nBenchmarks: {', '.join(BENCHMARKS)}\n")
        return
    unknown = [name for name in arguments if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(f"{results.machine()}; commit {results.commit()}")
    short = not arguments
    for name in arguments or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        found = benchmark.short() if short else benchmark.full()
        path = results.write(name, found, short=short)
        results.show(console, benchmark.title, found)
        console.print(f"written to {path}\n", soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
