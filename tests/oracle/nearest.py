"""Recall of nearest neighbours: Torc and Apache Cassandra answer the same queries over the same vectors, and both are held against an
exhaustive search.

  nearest.py --torc ADDRESS --oracle ADDRESS

The vectors lie in clusters, as embeddings do. Torc has to find 95 of 100 of the ten nearest rows, and not fewer than Cassandra by more than two.
"""

import argparse
import math
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from diff import Side  # noqa: E402

KEYSPACE = "oracle_nearest"
VECTORS, DIMENSIONS, CLUSTERS, SPREAD = 3_000, 24, 40, 0.25
QUERIES, WANTED = 100, 10
RECALL_MIN, BELOW_MAX = 0.95, 0.02
AT_ONCE = 64


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def euclidean(a, b):
    return -sum((x - y) ** 2 for x, y in zip(a, b))


def dot_product(a, b):
    return sum(x * y for x, y in zip(a, b))


SIMILARITIES = {"cosine": cosine, "euclidean": euclidean, "dot_product": dot_product}


def drawn(rng, centers):
    """A vector of length 1 near one of the centers; dot products are those of unit vectors in both databases."""
    vector = [x + rng.gauss(0, SPREAD) for x in rng.choice(centers)]
    length = math.sqrt(sum(x * x for x in vector))
    return [round(x / length, 6) for x in vector]


def fill(side, vectors):
    """Makes a table with the vectors in a column for each similarity."""
    side.run_quietly(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    side.must(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    columns = ", ".join(f"{name} vector<float, {DIMENSIONS}>" for name in SIMILARITIES)
    side.must(f"CREATE TABLE {KEYSPACE}.t (k int PRIMARY KEY, {columns})")
    for name in SIMILARITIES:
        side.must(f"CREATE INDEX ON {KEYSPACE}.t ({name}) USING 'sai' WITH OPTIONS = {{'similarity_function': '{name}'}}")
    names = ", ".join(SIMILARITIES)
    for first in range(0, len(vectors), AT_ONCE):
        inserts = (
            f"INSERT INTO {KEYSPACE}.t (k, {names}) VALUES ({key}, {', '.join([str(vectors[key])] * len(SIMILARITIES))})"
            for key in range(first, min(first + AT_ONCE, len(vectors)))
        )
        for future in [side.session.execute_async(text) for text in inserts]:
            future.result()


def recall(side, name, queries, nearest):
    """The part of the nearest rows that the index finds."""
    found = 0
    for query, wanted in zip(queries, nearest):
        text = f"SELECT k FROM {KEYSPACE}.t ORDER BY {name} ANN OF {query} LIMIT {WANTED}"
        rows = {int.from_bytes(key, "big") for (key,) in side.session.execute(text).current_rows}
        found += len(rows & wanted)
    return found / (WANTED * len(queries))


def compare(torc, oracle):
    """The number of similarities by which Torc finds too few."""
    rng = random.Random(1)
    centers = [[rng.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(CLUSTERS)]
    vectors = [drawn(rng, centers) for _ in range(VECTORS)]
    queries = [drawn(rng, centers) for _ in range(QUERIES)]
    sides = (Side("torc", torc), Side("cassandra", oracle))
    for side in sides:
        fill(side, vectors)
    failed = 0
    for name, similarity in SIMILARITIES.items():
        nearest = [set(sorted(range(VECTORS), key=lambda key: -similarity(query, vectors[key]))[:WANTED]) for query in queries]
        ours, theirs = (recall(side, name, queries, nearest) for side in sides)
        is_enough = ours >= RECALL_MIN and ours >= theirs - BELOW_MAX
        failed += not is_enough
        print(f"nearest: {name}: recall@{WANTED} of Torc {ours:.3f}, of Cassandra {theirs:.3f}{'' if is_enough else ' FAILED'}", flush=True)
    for side in sides:
        side.run_quietly(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True)
    parser.add_argument("--oracle", required=True)
    options = parser.parse_args()
    sys.exit(1 if compare(options.torc, options.oracle) else 0)


if __name__ == "__main__":
    main()
