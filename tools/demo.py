#!/usr/bin/env python3
"""The main job, seen from outside: a conversation survives a restart.

Asks the real server about a long document, goes on with the conversation, makes it durable,
kills the server with SIGKILL, starts it again and asks the same next turn once more. Prints the
time to the first token and the cached tokens of each turn; fails if the restarted server answers
differently, or computes what it had stored.
"""
import argparse
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time


class Server:
    """A server process on a free port, with its log in a file."""

    def __init__(self, binary, model, cache_dir, log, extra):
        self.log = log
        self.process = subprocess.Popen(
            [binary, "serve", model, "--port", "0", "--cache-dir", cache_dir, *extra],
            stdout=subprocess.PIPE, stderr=open(log, "ab"), text=True)
        self.port = self._read_port()

    def _read_port(self):
        # The first line on standard output names the address; it comes when the model is ready.
        for line in self.process.stdout:
            if line.startswith("listening on http://"):
                return int(line.strip().rsplit(":", 1)[1])
        raise SystemExit(f"the server did not start; its log:\n{pathlib.Path(self.log).read_text()}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def chat(self, messages, max_tokens):
        """Streams a reply; returns its text, seconds to the first token and usage."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        began = time.monotonic()
        first = None
        text, usage = "", None
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"HTTP {response.status}: {response.read().decode()}")
        for line in response:
            line = line.strip()
            if not line.startswith(b"data:") or line == b"data: [DONE]":
                continue
            event = json.loads(line[5:])
            if "error" in event:
                raise SystemExit(f"the server failed: {event['error']}")
            for choice in event.get("choices", []):
                piece = choice["delta"].get("content") or ""
                if piece and first is None:
                    first = time.monotonic() - began
                text += piece
            usage = event.get("usage") or usage
        connection.close()
        return {"text": text, "ttft": first if first is not None else time.monotonic() - began,
                "prompt": usage["prompt_tokens"],
                "cached": usage["prompt_tokens_details"]["cached_tokens"]}

    def flush(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/admin/cache/flush", b"")
        response = connection.getresponse()
        evidence = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"flush: HTTP {response.status}: {evidence}")
        return evidence


def document(lines):
    return "\n".join(
        [f"Shelf {i * 37 % 101}, row {i}: {i * 7919 % 1000} crates of {fruit} came from the {where}."
         for i in range(lines)
         for fruit, where in [(("pears", "figs", "plums", "limes")[i % 4],
                               ("north", "harbour", "old mill", "valley")[i * 7 % 4])]])


def row(name, result):
    return f"{name:<34}{result['ttft'] * 1000:>12.0f} ms{result['prompt']:>10}{result['cached']:>10}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="build/release/everwarm", help="the program")
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--lines", type=int, default=200, help="length of the document (about 24 tokens a line)")
    parser.add_argument("options", nargs="*", help="further options of 'serve', after --")
    arguments = parser.parse_args()

    work = tempfile.mkdtemp(prefix="everwarm_demo_")
    log = os.path.join(work, "server.log")
    cache_dir = os.path.join(work, "cache")
    servers = []

    def start():
        print("starting the server ...", file=sys.stderr, flush=True)
        servers.append(Server(arguments.server, arguments.model, cache_dir, log, arguments.options))
        return servers[-1]

    try:
        server = start()
        history = [{"role": "user", "content": document(arguments.lines) +
                    "\n\nWhat kinds of fruit are listed above?"}]
        print("reading a long document for the first time ...", file=sys.stderr, flush=True)
        cold = server.chat(history, 48)
        history += [{"role": "assistant", "content": cold["text"]},
                    {"role": "user", "content": "And where do they come from?"}]
        warm = server.chat(history, 48)
        flushed = server.flush()
        print(f"everything is on disk ({flushed['entries']} blocks); killing the server",
              file=sys.stderr, flush=True)
        server.kill()
        server = start()
        restarted = server.chat(history, 48)
        code = server.stop()

        print(f"\n{'turn':<34}{'first token':>15}{'prompt':>10}{'cached':>10}")
        print(row("first question (cold)", cold))
        print(row("next turn (warm)", warm))
        print(row("the same after kill -9 and restart", restarted))
        print(f"\nrestart is {cold['ttft'] / restarted['ttft']:.0f} times faster than cold; "
              f"the answer is {'the same' if restarted['text'] == warm['text'] else 'DIFFERENT'}:")
        print("  " + restarted["text"].strip().replace("\n", "\n  "))
        if restarted["text"] != warm["text"]:
            print(f"\nbefore the restart it was:\n  {warm['text']}")
            return 1
        if restarted["cached"] < warm["cached"]:
            print(f"\nonly {restarted['cached']} of {warm['cached']} tokens were found again")
            return 1
        if code != 0:
            print(f"\nthe server ended with {code} on SIGTERM")
            return 1
        return 0
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.kill()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
