"""Servers as processes and clients as people have them: for the demo, benchmarks and tests.

Needs only Python's own library. Every server gets a free port and a log of its own.
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EVERWARM = ROOT / "build/release/everwarm"
LLAMA_SERVER = ROOT / ".deps/llama-build/bin/llama-server"
LLAMA_BENCH = ROOT / ".deps/llama-build/bin/llama-bench"
SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = ROOT / "models/gemma-3-270m-q4_k_m.gguf"


class ServerFailed(Exception):
    """The server did not start, or answered what it must not."""


class Server:
    """A running server process on 127.0.0.1."""

    def __init__(self, command, log, port, environment=None):
        self.log = pathlib.Path(log)
        self.port = port
        self.began = time.monotonic()
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=open(self.log, "ab"), text=True,
                                        env={**os.environ, **(environment or {})})
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        self.ready_seconds = time.monotonic() - self.began

    def _wait_until_ready(self):
        raise NotImplementedError

    def _fail(self, what):
        raise ServerFailed(f"{what}; its log {self.log}:\n{self.log.read_text()[-4000:]}")

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout=150):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def memory(self, key="VmHWM"):
        """A figure of /proc/PID/status in bytes: VmHWM is the peak, VmRSS what is resident now."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(key)

    def reset_peak_memory(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")

    def request(self, method, path, body=None, headers=None, timeout=600):
        """One request; returns (status, decoded JSON or text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
            try:
                return response.status, json.loads(text)
            except ValueError:
                return response.status, text
        finally:
            connection.close()

    def chat(self, messages, max_tokens, on_piece=lambda: None, **extra):
        """Streams a chat reply at temperature 0; see stream()."""
        return self.stream("/v1/chat/completions", {"messages": messages, "max_tokens": max_tokens, **extra}, on_piece)

    def stream(self, path, body, on_piece=lambda: None):
        """A streamed reply: text, seconds to its first token (ttft), tokens a second after it, usage. Calls on_piece() for each."""
        body = {"temperature": 0, "seed": 1, "stream": True, "stream_options": {"include_usage": True}, **body}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        began = time.monotonic()
        times, text, usage = [], "", {}
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ServerFailed(f"HTTP {response.status}: {response.read().decode()}")
        for line in response:
            line = line.strip()
            if not line.startswith(b"data:") or line == b"data: [DONE]":
                continue
            event = json.loads(line[5:])
            if "error" in event:
                raise ServerFailed(f"error in the stream: {event['error']}")
            for choice in event.get("choices", []):
                piece = choice["delta"].get("content") if "delta" in choice else choice.get("text")
                if piece:
                    times.append(time.monotonic())
                    text += piece
                    on_piece()
            usage = event.get("usage") or usage
        connection.close()
        ended = time.monotonic()
        tokens = usage.get("completion_tokens", len(times))
        return {
            "text": text,
            "ttft": (times[0] if times else ended) - began,
            "seconds": ended - began,
            "decode": (tokens - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else None,
            "prompt": usage.get("prompt_tokens"),
            "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            "usage": usage,
        }


class Everwarm(Server):
    """`everwarm serve`; options as strings or numbers, for example {'--ctx': 8192}."""

    def __init__(self, model, cache_dir, log, options=None, binary=EVERWARM, environment=None):
        command = [binary, "serve", model, "--port", 0, "--cache-dir", cache_dir]
        for name, value in (options or {}).items():
            command += [name, value]
        super().__init__(command, log, port=None, environment=environment)

    def _wait_until_ready(self):
        # The only line on standard output; it comes when requests are answered.
        for line in self.process.stdout:
            if line.startswith("listening on http://"):
                self.port = int(line.strip().rsplit(":", 1)[1])
                return
        self.process.wait()
        self._fail(f"everwarm ended with {self.process.returncode}")

    def flush(self):
        status, evidence = self.request("POST", "/admin/cache/flush", b"")
        if status != 200:
            raise ServerFailed(f"flush: HTTP {status}: {evidence}")
        return evidence


class LlamaServer(Server):
    """llama-server of the pinned tree, for comparisons."""

    def __init__(self, model, log, options=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [LLAMA_SERVER, "-m", model, "--host", "127.0.0.1", "--port", port, "--no-webui"]
        for name, value in (options or {}).items():
            command += [name] if value is None else [name, value]
        super().__init__(command, log, port)

    def _wait_until_ready(self):
        while True:
            if self.process.poll() is not None:
                self._fail(f"llama-server ended with {self.process.returncode}")
            try:
                if self.request("GET", "/health", timeout=2)[0] == 200:
                    return
            except OSError:
                pass
            if time.monotonic() - self.began > 120:
                self._fail("llama-server did not become ready in 120 s")
            time.sleep(0.02)


def document(tokens, word):
    """About `tokens` tokens of numbered lines; only the first names the code word."""
    lines = [f"The code word is {word}."]
    while len(lines) * 21 < tokens:
        i = len(lines)
        fruit = ("pears", "figs", "plums", "limes")[i % 4]
        place = ("north", "harbour", "old mill", "valley")[i * 7 % 4]
        lines.append(f"Shelf {i * 37 % 101}, row {i}: {i * 7919 % 1000} crates of {fruit} from the {place}.")
    return "\n".join(lines)


def directory_bytes(path):
    """Bytes that the files below a directory take on the disk."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def copy_cache(source, target):
    """Copies a cache directory that is in use. Files that go meanwhile are superseded, and left out."""
    def copy(file, to):
        try:
            return shutil.copy2(file, to)
        except FileNotFoundError:
            return to
    shutil.copytree(source, target, copy_function=copy)
