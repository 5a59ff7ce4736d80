#!/usr/bin/env python3
"""Prints src/kernels/centroids.h: the Lloyd-Max quantisers of the standard normal distribution.

Each centroid is the mean of the distribution between the boundaries beside it, each boundary lies halfway between two centroids
(Lloyd 1982, Max 1960); the pair of conditions is iterated to a fixed point. Centroids are symmetric, so only the positive half is
printed.
"""
import math

BITS = (2, 3, 4, 5, 8)


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def above(x):
    return 0.5 * math.erfc(x / math.sqrt(2))


def centroids(bits):
    """The positive half, ascending."""
    count = 2 ** (bits - 1)
    points = [(i + 0.5) * 3.5 / count for i in range(count)]
    for _ in range(200000):
        edges = [0.0] + [(a + b) / 2 for a, b in zip(points, points[1:])] + [math.inf]
        moved = 0.0
        for i in range(count):
            low, high = edges[i], edges[i + 1]
            mass = above(low) - (0.0 if high == math.inf else above(high))
            mean = (density(low) - (0.0 if high == math.inf else density(high))) / mass
            moved = max(moved, abs(mean - points[i]))
            points[i] = mean
        if moved < 1e-13:
            break
    return points


def main():
    print("""// Centroids of the Lloyd-Max quantisers of the standard normal distribution, the
// positive half of each; written by tools/lloyd_max.py.
#ifndef EVERWARM_KERNELS_CENTROIDS_H_
#define EVERWARM_KERNELS_CENTROIDS_H_

namespace everwarm::kernels {
""")
    for bits in BITS:
        points = centroids(bits)
        print(f"inline constexpr float kCentroids{bits}[{len(points)}] = {{")
        for i in range(0, len(points), 4):
            print("    " + " ".join(f"{p:.9g}f," for p in points[i:i + 4]))
        print("};\n")
    print("""}  // namespace everwarm::kernels

#endif  // EVERWARM_KERNELS_CENTROIDS_H_""")


if __name__ == "__main__":
    main()
