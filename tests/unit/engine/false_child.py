"""Stands in for the engine's process, and does it badly."""

import os
import socket
import sys
import time

from freehold.engine.ipc import Channel, Events, Ready, ToEngine
from freehold.protocol import EngineInfo, Finish, Generate, Tokens
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
        load(end, info(f"fh-{os.getpid()}"))
    if what == "miscounts":
        miscount(load(end, info("fh-1")))
    time.sleep(3600)


def load(end: socket.socket, what: EngineInfo) -> Channel[ToEngine]:
    channel: Channel[ToEngine] = Channel(end, ToEngine)
    while not channel.receive(None):
        pass
    channel.send(Ready(what, Limits(9, 10, 16, 4, 5)))
    return channel


def miscount(channel: Channel[ToEngine]) -> None:
    """Answer each request with one id, and claim that it was two."""
    while True:
        for message in channel.receive(None):
            if isinstance(message, Generate):
                name = message.request_id
                tokens = Tokens(request_id=name, token_ids=(7,))
                end = Finish(request_id=name, reason="length", num_prompt_tokens=1, num_output_tokens=2)
                channel.send(Events((tokens, end)))


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
