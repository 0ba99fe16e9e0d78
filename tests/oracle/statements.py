"""Sends hand-written statements to Torc and to Apache Cassandra: answers, error classes, error texts and warnings must agree.

  statements.py --torc ADDRESS --oracle ADDRESS [FILE…]

`statements/*.cql` hold cases that a random generator does not make: limits, odd literals, mistakes that people make. A
statement ends with `;` at a line's end; each file runs in a keyspace of its own. A line `-- differs: REASON` before a
statement says that its answers may differ, and why; `-- text: REASON` that only its error's text may. A line `-- values: …`
makes it a prepared one with these values: `null`, `unset`, `0x…` for bytes, and `0x…*N` for bytes that are repeated. A line
`-- page: N` asks for pages of N rows; that an empty page follows the last one is no difference.
"""

import argparse
import collections
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra.protocol import _UNSET_VALUE  # noqa: E402
from cassandra.query import BoundStatement, SimpleStatement  # noqa: E402
from diff import Side, same_name  # noqa: E402


# A statement of a file: its text, the kind of difference that is allowed or None, bound values or None, page size or None.
Case = collections.namedtuple("Case", "text allowed values page")


def value_of(text):
    """A bound value of a line `-- values:`."""
    if text in ("null", "unset"):
        return None if text == "null" else _UNSET_VALUE
    digits, _, times = text.removeprefix("0x").partition("*")
    return bytes.fromhex(digits) * int(times or 1)


def parse(path):
    """The statements of a file, as cases."""
    found, lines, allowed, values, page = [], [], None, None, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if not lines and line.startswith("--"):
                for kind in ("differs", "text"):
                    if line.startswith(f"-- {kind}: "):
                        allowed = kind
                if line.startswith("-- values: "):
                    values = [value_of(text.strip()) for text in line.removeprefix("-- values: ").split(",")]
                if line.startswith("-- page: "):
                    page = int(line.removeprefix("-- page: "))
                continue
            if not lines and not line.strip():
                continue
            lines.append(line)
            if line.endswith(";"):
                found.append(Case("\n".join(lines)[:-1], allowed, values, page))
                lines, allowed, values, page = [], None, None, None
    if lines:
        raise SystemExit(f"{path}: the last statement does not end with ';'")
    return found


def execute(side, case):
    """The result of one server, and its pages."""
    if case.values is None:
        statement = SimpleStatement(case.text, fetch_size=case.page)
    else:
        statement = BoundStatement(side.session.prepare(case.text))
        # As they are: the driver would refuse what a server has to refuse.
        statement.values, statement.fetch_size = case.values, case.page
    result = side.session.execute(statement)
    pages = [list(result.current_rows)] if result.column_names is not None else []
    while case.page and result.has_more_pages:
        result.fetch_next_page()
        pages.append(list(result.current_rows))
    while len(pages) > 1 and not pages[-1]:
        pages.pop()
    return result, pages


def answer(side, case):
    """The answer of one server: (kind, compared part, text)."""
    try:
        result, pages = execute(side, case)
    except Exception as error:  # any exception of the driver for a server's error, or for one of its own
        inner = next(iter(getattr(error, "errors", {}).values()), error) if hasattr(error, "errors") else error
        if type(error).__name__ == "ProtocolException":
            side.wait_for_connection()
        return ("error", type(inner).__name__, message(inner))
    warnings = tuple(result.response_future.warnings or ())
    if result.column_names is None:
        return ("void", warnings, "")
    columns = [(same_name(name), str(kind)) for name, kind in zip(result.column_names, result.column_types)]
    return ("rows", (columns, pages, warnings), "")


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
        for case in parse(path):
            text, allowed = case.text, case.allowed
            total += 1
            ours, theirs = (answer(side, case) for side in sides)
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
