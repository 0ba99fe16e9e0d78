"""Sends hand-written statements to Torc and to Apache Cassandra: answers, error classes, error texts and warnings must agree.

  statements.py --torc ADDRESS --oracle ADDRESS [FILE…]

`statements/*.cql` hold cases that a random generator does not make: limits, odd literals, mistakes that people make. A
statement ends with `;` at a line's end; each file runs in a keyspace of its own. A line `-- differs: REASON` before a
statement says that its answers may differ, and why; `-- text: REASON` that only its error's text may.
"""

import argparse
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra.query import SimpleStatement  # noqa: E402
from diff import Side, same_name  # noqa: E402


def parse(path):
    """The statements of a file: (text, kind of allowed difference or None)."""
    found, lines, allowed = [], [], None
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if not lines and line.startswith("--"):
                for kind in ("differs", "text"):
                    if line.startswith(f"-- {kind}: "):
                        allowed = kind
                continue
            if not lines and not line.strip():
                continue
            lines.append(line)
            if line.endswith(";"):
                found.append(("\n".join(lines)[:-1], allowed))
                lines, allowed = [], None
    if lines:
        raise SystemExit(f"{path}: the last statement does not end with ';'")
    return found


def answer(side, text):
    """The answer of one server: (kind, compared part, text)."""
    try:
        result = side.session.execute(SimpleStatement(text, fetch_size=None))
    except Exception as error:  # any exception of the driver for a server's error, or for one of its own
        inner = next(iter(getattr(error, "errors", {}).values()), error) if hasattr(error, "errors") else error
        if type(error).__name__ == "ProtocolException":
            side.wait_for_connection()
        return ("error", type(inner).__name__, message(inner))
    warnings = tuple(result.response_future.warnings or ())
    if result.column_names is None:
        return ("void", warnings, "")
    columns = [(same_name(name), str(kind)) for name, kind in zip(result.column_names, result.column_types)]
    return ("rows", (columns, list(result.current_rows), warnings), "")


def message(error):
    """The server's own words in the driver's text of an error."""
    text = str(error)
    start = text.find('message="')
    if start >= 0:
        text = text[start + len('message="') : text.rfind('"')]
    # Cassandra lists signatures in the order of a hash table.
    return re.sub(r"(?<=signatures: ).*?(?=\)(?:: use type casts|$))", sorted_signatures, text)


def sorted_signatures(found):
    """A list `system.f : (a) -> b, system.f : (c) -> d` in the order of its text."""
    return ", ".join(sorted(re.split(r", (?=\w+\.\w+ : )", found[0])))


def run(paths, torc, oracle):
    """Runs the files; the number of statements whose answers differ."""
    different = total = 0
    for path in paths:
        name = os.path.splitext(os.path.basename(path))[0]
        keyspace = f"statements_{name}"
        sides = (torc, oracle)
        for side in sides:
            side.run_quietly(f"DROP KEYSPACE IF EXISTS {keyspace}")
            side.must(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            side.session.set_keyspace(keyspace)
        for text, allowed in parse(path):
            total += 1
            ours, theirs = (answer(side, text) for side in sides)
            if ours == theirs or allowed == "differs":
                continue
            # A syntax error names the expected tokens here, which Cassandra's does not: only its class is compared.
            if ours[:2] == theirs[:2] and (allowed == "text" or ours[1] == "SyntaxException"):
                continue
            different += 1
            print(f"DIFFERS {name}: {text}\n  torc      {ours}\n  cassandra {theirs}", flush=True)
        for side in sides:
            side.run_quietly(f"DROP KEYSPACE IF EXISTS {keyspace}")
    print(f"statements: {total} statements, {different} differences", flush=True)
    return different


def compare(torc, oracle, files=()):
    """Runs these files, or all of them, against two addresses; the number of differences."""
    paths = files or sorted(glob.glob(os.path.join(HERE, "statements", "*.cql")))
    return run(paths, Side("torc", torc), Side("cassandra", oracle))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True)
    parser.add_argument("--oracle", required=True)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    sys.exit(1 if compare(options.torc, options.oracle, options.files) else 0)


if __name__ == "__main__":
    main()
