"""Captures of the internode protocol as tools/wireshark/torc.lua reads them."""

import pathlib
import subprocess
import sys
import xml.etree.ElementTree

DISSECTOR = pathlib.Path(__file__).resolve().parents[2] / "tools/wireshark/torc.lua"


def decode(capture):
    """The messages of a capture, each a dictionary of the dissector's fields; lists where a field comes twice."""
    # Twice, as Wireshark does: the second time a request knows its answer.
    command = ["tshark", "-2", "-R", "tcp", "-r", str(capture), "-X", f"lua_script:{DISSECTOR}", "-T", "pdml"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if run.returncode != 0 or "Lua" in run.stderr:
        sys.exit(f"tshark failed ({run.returncode}): {run.stderr}")
    messages = []
    for packet in xml.etree.ElementTree.fromstring(run.stdout).iter("packet"):
        number = next(field.get("show") for field in packet.iter("field") if field.get("name") == "frame.number")
        for field in packet.iter("field"):
            name = field.get("name", "")
            if name in ("torc.hello", "torc.len"):
                messages.append({"packet": number})
            if name.startswith("torc.") and messages:
                messages[-1].setdefault(name.removeprefix("torc."), field.get("show"))
            elif name == "_ws.expert.message" and messages:
                messages[-1].setdefault("expert", field.get("show"))
    return messages
