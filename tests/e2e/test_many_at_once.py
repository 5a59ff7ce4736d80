"""Requests at once: what they share, what they wait for, and clients that leave."""
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from everwarm import BLOCK, document

PATIENCE = 60


def at_once(calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def wait_for(server, condition):
    """Asks for statistics until they fulfil the condition."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        stats = server.stats()
        if condition(stats):
            return stats
        time.sleep(0.01)
    raise AssertionError(f"never came true: {stats}")


class Client:
    """A request over a socket of its own, which can be left at any time."""

    def __init__(self, server, prompt, max_tokens, **more):
        body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **more}).encode()
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def read_until(self, needle):
        data = b""
        while needle not in data:
            piece = self.socket.recv(4096)
            assert piece, data
            data += piece

    def leave(self):
        self.socket.close()


def test_sixteen_at_once_on_a_new_prefix_compute_it_once(start):
    server = start()
    prefix = document(900, "zebra")
    prompts = [f"{prefix}\nQuestion {i}: what is on shelf {i * 3}?\nAnswer:" for i in range(16)]
    answers = at_once([lambda p=p: server.complete(p, 12) for p in prompts])
    computed = server.stats()["tokens"]["computed_prompt"]
    shared = len(server.tokens(prefix))
    assert computed < shared + 16 * 40, (computed, shared)
    for prompt, answer in zip(prompts, answers):
        # Each after the other, in a namespace of their own.
        assert answer.text == server.complete(prompt, 12, cache_salt="one by one").text


def leave_in_prefill(server, stream):
    prompt = document(1500, f"streamed {stream}")
    length = len(server.tokens(prompt))
    other = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 150, "temperature": 0, "ignore_eos": True})
    pieces = other.pieces()
    text = next(pieces)
    before = server.stats()
    client = Client(server, prompt, 50, stream=stream)
    wait_for(server, lambda stats: stats["tokens"]["computed_prompt"] > before["tokens"]["computed_prompt"] + 3 * BLOCK)
    client.leave()
    stats = wait_for(server, lambda stats: stats["requests"]["cancelled"] == before["requests"]["cancelled"] + 1)
    computed = stats["tokens"]["computed_prompt"] - before["tokens"]["computed_prompt"]
    assert computed < length - 2 * BLOCK, "it went on to the end"
    # Nobody else noticed.
    text += "".join(pieces)
    assert text == server.cold_complete("Rivers:", 150, ignore_eos=True).text
    # The retry starts where it got to.
    answer = server.complete(prompt, 6)
    assert answer.cached >= 3 * BLOCK
    assert answer.cached <= length - BLOCK
    assert answer.text == server.cold_complete(prompt, 6).text


def test_a_client_of_a_stream_that_leaves_in_prefill(start):
    leave_in_prefill(start("--prefill-chunk", "128"), stream=True)


def test_a_client_of_a_plain_reply_that_leaves_in_prefill(start):
    leave_in_prefill(start("--prefill-chunk", "128"), stream=False)


def test_clients_that_leave_in_decode_and_in_the_queue(start):
    server = start("--max-batch", "1")
    for stream in (True, False):
        before = server.stats()
        running = Client(server, "Mountains:", 3500, stream=stream)
        wait_for(server, lambda stats: stats["tokens"]["generated"] > before["tokens"]["generated"] + 5)
        queued = [Client(server, f"Lakes {i}:", 50, stream=stream) for i in range(3)]
        wait_for(server, lambda stats: stats["requests"]["waiting"] == 3)
        patient = []
        thread = threading.Thread(target=lambda: patient.append(server.complete("Seas:", 8)))
        thread.start()
        wait_for(server, lambda stats: stats["requests"]["waiting"] == 4)
        for client in queued:
            client.leave()
        wait_for(server, lambda stats: stats["requests"]["waiting"] == 1)
        running.leave()
        thread.join(PATIENCE)
        assert patient[0].text == server.cold_complete("Seas:", 8).text
        stats = server.stats()
        assert stats["requests"]["cancelled"] == before["requests"]["cancelled"] + 4
        assert stats["requests"]["failed"] == 0
        # What was decoded can be found.
        assert stats["tokens"]["generated"] < before["tokens"]["generated"] + 3000


def test_a_running_stream_goes_on_while_a_long_prompt_is_computed(start):
    server = start()
    stream = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 3000, "temperature": 0, "ignore_eos": True})
    pieces = stream.pieces()
    for _ in range(30):
        next(pieces)
    before = server.stats()["tokens"]["generated"]
    done = threading.Event()

    def read():
        for _ in pieces:
            if done.is_set():
                return

    reader = threading.Thread(target=read)
    reader.start()
    server.complete(document(1200, "xerus"), 1)
    generated = server.stats()["tokens"]["generated"] - before
    done.set()
    reader.join(PATIENCE)
    stream.close()
    # In steps of 512 tokens it would be about four; here 27 come between two of them.
    assert generated > 40
