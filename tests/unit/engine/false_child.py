"""Stands in for the engine's process, and does it badly."""

import os
import socket
import sys
import time

from freehold.engine.ipc import Channel, Ready, Start, ToEngine
from freehold.protocol import EngineInfo
from freehold.sched.admission import Limits


def info(fingerprint: str) -> EngineInfo:
    return EngineInfo(
        model_family="m", vocab_size=1, max_model_len=2, max_position=3, max_num_seqs=4, block_size=5, num_blocks=6,
        kv_tokens=7, weight_bytes=8, kv_bytes=9, scratch_bytes=10, backend="cpu", fingerprint=fingerprint, load_s=0.5,
    )  # fmt: skip


def main(what: str, end: socket.socket) -> None:
    if what == "dies":
        sys.exit(3)
    if what == "says_junk":
        end.sendall(b"\0\0\0\3abc")
    if what == "says_too_much":
        end.sendall(b"\xff" * 4)
    if what == "fickle":
        channel: Channel[Start] = Channel(end, ToEngine)
        while not channel.receive(None):
            pass
        channel.send(Ready(info(f"fh-{os.getpid()}"), Limits(1, 2, 3, 4, 5)))
    time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
