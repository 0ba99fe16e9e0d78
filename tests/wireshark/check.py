"""Whether Wireshark's dissector of the internode protocol (tools/wireshark/torc.lua) decodes the nodes' messages.

Replays the capture that `cargo test -p rpc` keeps (crates/network/rpc/testdata/wireshark) through tshark and compares the
decoded messages with the sent ones; then damages the capture and expects that to be seen. Needs no privileges.

    check.py [CAPTURE]     with a capture of one's own: prints the decoded messages
"""

import pathlib
import struct
import sys
import tempfile

from dissect import DISSECTOR, decode

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "crates/network/rpc/testdata/wireshark/conversation.pcap"
VERBS = ROOT / "crates/network/rpc/src/verb.rs"


def line(message):
    """One message as the expectations below name it."""
    if "hello" in message:
        if "hello.outcome" in message:
            return f"hello {message['hello.outcome']} version {message['hello.version']}"
        return f"hello class {message['hello.class']} of {message['hello.cluster_name']}"
    parts = [message["kind"], message.get("verb", "-"), "packed" if message["packing"] != "0" else "plain"]
    if "refusal.code" in message:
        parts.append(f"{message['refusal.code']} {message['refusal.message']}")
    return " ".join(parts)


# Kinds: 1 request, 2 one way, 3 answer, 4 refusal, 5 ping, 6 pong.
EXPECTED = [
    "hello class 1 of test",
    "hello 0 version 2",
    "1 1 plain",
    "3 1 plain",
    "hello class 0 of test",
    "hello 0 version 2",
    "1 32 plain",
    "3 32 plain",
    "1 33 plain",
    "3 33 plain",
    "1 34 plain",
    "4 34 plain 64 the disk is full",
    "2 2 plain",
    "hello class 2 of test",
    "hello 0 version 2",
    "1 65 packed",
    "3 65 packed",
    "1 65 plain",
    "3 65 plain",
]


def fail(text):
    """Ends the test."""
    sys.exit(f"wireshark: {text}")


def check_conversation():
    """The decoded messages equal the sent ones."""
    messages = decode(CAPTURE)
    said = [message for message in messages if message.get("kind") not in ("5", "6")]
    # Messages of different connections may overtake each other: only each connection's order counts.
    found, expected = sorted(map(line, said)), sorted(EXPECTED)
    if found != expected:
        fail("decoded\n  " + "\n  ".join(map(line, said)) + "\nbut expected\n  " + "\n  ".join(EXPECTED))
    for kind in ("5", "6"):
        if not any(message.get("kind") == kind for message in messages):
            fail(f"no frame of kind {kind}: idle connections ask for signs of life")
    wrong = [message for message in messages if "expert" in message]
    if wrong:
        fail(f"a sound capture is called wrong: {wrong}")
    requests = {message["packet"]: message for message in messages if message.get("kind") == "1"}
    answers = [message for message in messages if message.get("kind") in ("3", "4")]
    for answer in answers:
        if "answer_to" not in answer or "time" not in answer:
            fail(f"an answer without its request: {answer}")
        request = requests[answer["answer_to"]]
        if request["verb"] != answer["verb"] or request["stream"] != answer["stream"]:
            fail(f"{answer} does not belong to {request}")
        if request.get("answered_in") != answer["packet"]:
            fail(f"{request} does not know its answer {answer}")
    unpacked = [message["unpacked_len"] for message in messages if "unpacked_len" in message]
    if unpacked != ["80000", "80000"]:
        fail(f"lengths of packed bodies: {unpacked}")
    return len(messages)


def check_damage():
    """One bit of a body, one of a header: both are seen."""
    sound = CAPTURE.read_bytes()
    body = sound.index(b"ballot 7, value")
    for at, where in ((body, "body"), (body - 1 - 30 + 16, "header")):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(damaged)
            file.flush()
            wrong = [message for message in decode(file.name) if "expert" in message]
        if len(wrong) != 1 or wrong[0].get("verb") != "33":
            fail(f"a damaged {where} is not seen, or something else is: {wrong}")


def check_cut():
    """A capture that ends in the middle is decoded up to there."""
    sound = CAPTURE.read_bytes()
    packets, at = [], 24
    while at < len(sound):
        (length,) = struct.unpack_from("<I", sound, at + 8)
        packets.append(sound[at : at + 16 + length])
        at += 16 + length
    whole = len(decode(CAPTURE))
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(sound[:24] + b"".join(packets[: len(packets) // 2]))
        file.flush()
        half = len(decode(file.name))
    if not 0 < half < whole:
        fail(f"half of a capture has {half} of {whole} messages")


def check_verbs():
    """The dissector knows every verb of the program by number and name."""
    listed = DISSECTOR.read_text()
    for row in VERBS.read_text().splitlines():
        parts = row.strip().split(", ")
        if len(parts) == 4 and " = " in parts[0] and parts[1].startswith('"'):
            number, name = parts[0].split(" = ")[1], parts[1]
            if f"[{number}] = {name}" not in listed:
                fail(f"the dissector does not know verb {number} ({name})")


def main():
    """Prints a capture, or runs all checks."""
    if len(sys.argv) > 1:
        for message in decode(sys.argv[1]):
            print(message["packet"], line(message))
        return
    check_verbs()
    count = check_conversation()
    check_damage()
    check_cut()
    print(f"wireshark: {count} messages decoded, damage seen")


main()
