# SPDX-License-Identifier: BSL-1.0
"""python3 simulate_ranks.py PIECES.jsonl [--copies 100] [--scale 1] [--message 28] [--start 0.5] [--ranks 64,256,1024,4096]

How long pieces would take on many ranks, from their recorded times: the key "seconds" of each line of PIECES, as
`remat-plan --json` writes them, times --scale. Each stands for --copies pieces, such as seeds. Rank 0 hands out one piece after
the other, the longest first, and is busy --message microseconds for each; it runs none itself. All begin after --start
seconds. Prints a table in Markdown: the efficiency is the sum of the times over ranks × makespan."""

import argparse
import heapq
import json


def simulate(times, ranks, message, start):
    """The makespan, and how long rank 0 is busy."""
    free = [start] * (ranks - 1)  # when each of the others is free; a heap
    now = start
    for time in times:
        now = max(now, heapq.heappop(free)) + message
        heapq.heappush(free, now + time)
    return max(free), len(times) * message


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pieces")
    parser.add_argument("--copies", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--message", type=float, default=28)
    parser.add_argument("--start", type=float, default=0.5)
    parser.add_argument("--ranks", default="64,256,1024,4096")
    args = parser.parse_args()
    with open(args.pieces) as file:
        times = [json.loads(line)["seconds"] * args.scale for line in file]
    times = sorted(times * args.copies, reverse=True)
    total = sum(times)
    print(f"{len(times)} pieces, {total:.0f} s in all, {total / len(times):.3f} s on average, the longest {times[0]:.2f} s\n")
    print("| Ranks | Makespan | Efficiency | Rank 0 busy |\n|---|---|---|---|")
    for ranks in map(int, args.ranks.split(",")):
        end, busy = simulate(times, ranks, args.message * 1e-6, args.start)
        print(f"| {ranks:,} | {end:.2f} s | {100 * total / ranks / end:.0f} % | {100 * busy / end:.0f} % |")


if __name__ == "__main__":
    main()
