"""Instructions that a statement takes, beside the last recorded ones: `./dev bench --check`.

    bench/instructions.py [--record] [read] [write]

Counts with bench/callgrind.sh (valgrind; a release build) and compares with the last entry of results/instructions.json.
Exits with 1 when a kind takes over 3 % more. With --record the figures become a new entry, which a commit that changes
them on purpose brings with it.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
HISTORY = BENCH / "results" / "instructions.json"
KINDS = ["read", "write"]
# Above the last entry by more is a regression; counts of one program differ by less than 0.1 %.
REGRESSION_PERCENT = 3.0


def count(kind):
    """The instructions of one statement of a kind, and the functions that take most of them."""
    done = subprocess.run([BENCH / "callgrind.sh", kind], stdout=subprocess.PIPE, text=True, check=True)
    found = re.search(rf"^{kind}: (\d+) instructions an operation$", done.stdout, re.MULTILINE)
    if not found:
        sys.exit(f"bench/callgrind.sh printed no figure of {kind}:\n{done.stdout}")
    return int(found[1]), done.stdout


def check(kind, now, before):
    """Prints a comparison; whether it is a regression."""
    if before is None:
        print(f"{kind}: {now:,} instructions, none recorded before")
        return False
    percent = (now - before) / before * 100
    is_regression = percent > REGRESSION_PERCENT
    verdict = f"REGRESSION, over {REGRESSION_PERCENT:g} %" if is_regression else "ok"
    print(f"{kind}: {now:,} instructions, {before:,} before ({percent:+.1f} %): {verdict}")
    return is_regression


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --check", description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="add the figures to results/instructions.json")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="read, write; both without")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"there is no kind {unknown[0]}; there are {', '.join(KINDS)}")
    history = json.loads(HISTORY.read_text()) if HISTORY.exists() else []
    figures, regressed = {}, []
    for kind in arguments.kinds or KINDS:
        figures[kind], details = count(kind)
        before = next((entry[kind] for entry in reversed(history) if kind in entry), None)
        if check(kind, figures[kind], before):
            regressed.append(kind)
            print(details)
    if arguments.record:
        head = ["git", "-C", BENCH, "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(head, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        entry = {"date": datetime.date.today().isoformat(), "commit": commit, **figures}
        lines = ",\n".join(json.dumps(one) for one in [*history, entry])
        HISTORY.write_text(f"[\n{lines}\n]\n")
        print(f"recorded in {HISTORY.relative_to(BENCH.parent)}")
    elif regressed:
        sys.exit(1)


if __name__ == "__main__":
    main()
