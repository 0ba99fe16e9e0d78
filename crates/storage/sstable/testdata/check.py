#!/usr/bin/env python3
"""Lets Cassandra's sstabledump read the files of the test `oracle`, and compares it with the dump beside each SSTable.

    check.py DIR EXPORT_COMMAND

EXPORT_COMMAND with the path of a Data.db added prints its sstabledump.
"""
import json, os, re, subprocess, sys

out, export = sys.argv[1:]
bad = 0
for name in sorted(os.listdir(out)):
    directory = os.path.join(out, name)
    data = next(os.path.join(directory, f) for f in os.listdir(directory) if f.endswith("Data.db"))
    done = subprocess.run(f"{export} {data}", shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    theirs, mine = done.stdout.rstrip(), open(os.path.join(directory, "dump.json")).read().rstrip()
    if name == "counters":
        # sstabledump shows the first bytes of a counter's context for its value.
        theirs, mine = (re.sub(r'"value" : -?\d+', '"value"', text) for text in (theirs, mine))
    theirs, mine = (re.sub(r'"expired" : \w+', '"expired"', text) for text in (theirs, mine))
    if theirs == mine:
        print("same", name)
        continue
    bad += 1
    pairs = list(zip(theirs.split("\n"), mine.split("\n")))
    at = next((i for i, (a, b) in enumerate(pairs) if a.rstrip() != b.rstrip()), len(pairs))
    print("DIFFERENT", name, "line", at + 1, *(pairs[at] if at < len(pairs) else ("length",)), done.stderr[-500:], sep="\n  ")
sys.exit(bad != 0)
