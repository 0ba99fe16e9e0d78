"""Starts a Torc node and Apache Cassandra, and holds one against the other: `run.py --torc BINARY [ARGS of diff.py]`.

First the statements, those written by hand (`statements.py`), nearest neighbours (`nearest.py`) and generated statements (`diff.py`), then the files
(`sstables.py`): SSTables cross in both directions.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import diff  # noqa: E402
import nearest  # noqa: E402
import sstables  # noqa: E402
import statements  # noqa: E402
from environment import Failure  # noqa: E402
from node import ADDRESS, ORACLE_ADDRESS, Oracle, Torc, Workspace  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--only", choices=("statements", "sstables"), help="one half")
    parser.add_argument("--host", help="a Cassandra that runs already, for the statements")
    diff.arguments(parser)
    options = parser.parse_args()
    failed = 0
    with Workspace("oracle") as folder:
        torc = Torc(options.torc, folder, ADDRESS, options=("--dynamic-data-masking-enabled", "true"))
        settings = {"COMPATIBILITY": "CASSANDRA_4", "EXTRA": "dynamic_data_masking_enabled: true\nmaterialized_views_enabled: true\n"}
        # The files that Torc writes decide how late a cell can expire, so Cassandra must write the same.
        oracle = Oracle(os.path.join(folder, "cassandra"), ORACLE_ADDRESS, settings)
        try:
            if options.only != "sstables":
                if not options.host:
                    print(f"Cassandra was ready in {oracle.start():.0f} s", flush=True)
                torc.start()
                if options.cases != 1:
                    failed += statements.compare(ADDRESS, options.host or ORACLE_ADDRESS)
                    failed += nearest.compare(ADDRESS, options.host or ORACLE_ADDRESS)
                failed += diff.compare(ADDRESS, options.host or ORACLE_ADDRESS, options)
                if not torc.is_running():
                    print(f"FAIL torc ended with {torc.process.returncode}:\n{torc.log_tail()}")
                    failed += 1
        finally:
            torc.kill()
            oracle.kill()
        # The repetition of one case does not compare files.
        if options.only != "statements" and options.cases != 1:
            failed += sstables.cross(options.torc, os.path.join(folder, "files"))
        print(f"oracle: {'FAILED' if failed else 'ok'}")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"oracle: {failure}")
