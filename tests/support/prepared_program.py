"""``compatgate`` as shells of tests call it: the prepared process runs it, and this one waits.

Arguments: the socket of the process of prepared.py, its Python, and the words of the command. A
Python that imports nothing but this starts in a fiftieth of the time. Signals are handed on, and
it ends as the command did.
"""

import json
import os
import signal
import socket
import sys

_HANDED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(address: str, python: str, *words: str) -> int:
    """Have the command run; return its exit status."""
    argv = [python, "-m", "compatgate", *words]
    request = {"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ), "session": False}
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(address)
    socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
    number = asking.recv(64)
    if number in (b"", b"no"):
        os.execv(python, argv)
    for one in _HANDED_ON:
        signal.signal(one, lambda received, _frame: os.kill(int(number), received))
    status = os.waitstatus_to_exitcode(int(asking.recv(64) or b"9"))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
