"""GUEST: asks name servers as any program does and prints as JSON what became of each question.

usage: python3 - ADDRESS...
"""

import json
import socket
import sys

SECONDS = 20  # what a question costs that is dropped instead of refused
QUESTION = bytes.fromhex("07e301000001000000000000076578616d706c65036f72670000010001")  # example.org


def asked(kind, address):
    with socket.socket(socket.AF_INET, kind) as out:
        out.settimeout(SECONDS)
        try:
            out.connect((address, 53))
            out.send(QUESTION)
            out.recv(1000)
            return "answered"
        except TimeoutError:
            return "silence"
        except OSError as error:
            return type(error).__name__


KINDS = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM}
print(json.dumps({f"{name} {at}": asked(kind, at) for at in sys.argv[1:] for name, kind in KINDS.items()}))
