"""The real server as a process, and the words to talk to it."""
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("EVERWARM_BINARY", str(ROOT / "build/release/everwarm"))
SMOL = str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
GEMMA = str(ROOT / "models/gemma-3-270m-q4_k_m.gguf")
# Block size of the servers here, in tokens.
BLOCK = 64

_salts = itertools.count()


def copy_cache(cache_dir, to):
    """Copies the cache of a running server, as a kill at this moment would leave it; files go while it lasts."""
    def copy(source, target):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)
    shutil.copytree(cache_dir, to, copy_function=copy)


class Answer:
    """One finished HTTP reply."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def usage(self):
        return self.json["usage"]

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]

    @property
    def from_ssd(self):
        return self.usage["everwarm"]["cached_from_ssd"]

    @property
    def prompt_tokens(self):
        return self.usage["prompt_tokens"]

    @property
    def text(self):
        assert self.status == 200, self.body
        choice = self.json["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]

    @property
    def exact(self):
        """The text and how likely each of its tokens was, to the last bit: a wrong key or value shows here long before
        it changes a text. Equal for the same prompt only where products do not depend on how many rows are
        computed together, as in tiny models."""
        choice = self.json["choices"][0]
        likely = choice["logprobs"]
        assert likely is not None, self.body
        return self.text, (tuple(token["logprob"] for token in likely["content"]) if "message" in choice
                           else tuple(likely["token_logprobs"]))

    @property
    def error(self):
        return self.json["error"]


class Stream:
    """A streamed reply that is read event by event."""

    def __init__(self, connection, response):
        self.connection = connection
        self.response = response
        self.status = response.status

    def events(self):
        for line in self.response:
            line = line.strip()
            if line.startswith(b"data: "):
                yield line[len(b"data: "):].decode()

    def pieces(self):
        """The texts, in order; fails on an error event."""
        for event in self.events():
            if event == "[DONE]":
                return
            chunk = json.loads(event)
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                text = choice["text"] if "text" in choice else choice["delta"].get("content")
                if text:
                    yield text

    def close(self):
        self.response.close()
        self.connection.close()


class Server:
    """A server process. Options are name, value, name, value; its log is in `log` (a path)."""

    def __init__(self, cache_dir, *options, model=SMOL, log, environment=None):
        self.log = pathlib.Path(log)
        self.cache_dir = cache_dir
        command = serve_command(cache_dir, *options, model=model)
        self.log_file = open(self.log, "ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log_file,
                                        env={**clean_environment(), **(environment or {})})
        self.port = self._wait_until_ready()
        # Nobody blocks on a full pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _wait_until_ready(self):
        # The line comes after the model is loaded; the end of the output before
        # it means that the process has ended.
        for line in self.process.stdout:
            match = re.search(rb"listening on http://\S+:(\d+)", line)
            if match:
                return int(match.group(1))
        code = self.process.wait()
        raise AssertionError(f"the server ended with {code}:\n{self.log.read_text()}")

    # --- requests ---
    def request(self, method, path, body=None, headers=None, timeout=300):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data,
                               {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def stream(self, path, body, timeout=300, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("POST", path, json.dumps({**body, "stream": True}).encode(),
                           {"Content-Type": "application/json", **(headers or {})})
        return Stream(connection, connection.getresponse())

    def post_unread(self, path, body):
        """A connection whose answer nobody has waited for."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", path, json.dumps(body).encode(),
                           {"Content-Type": "application/json"})
        return connection

    def complete(self, prompt, max_tokens=8, **more):
        return self.request("POST", "/v1/completions",
                            {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 0, **more})

    def chat(self, messages, max_tokens=8, headers=None, **more):
        return self.request("POST", "/v1/chat/completions",
                            {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "logprobs": True, **more},
                            headers)

    # The same, computed from nothing: a namespace that nobody has used.
    def cold_complete(self, prompt, max_tokens=8, **more):
        answer = self.complete(prompt, max_tokens, cache_salt=f"cold {next(_salts)}", **more)
        assert answer.cached == 0
        return answer

    def cold_chat(self, messages, max_tokens=8, **more):
        answer = self.chat(messages, max_tokens, cache_salt=f"cold {next(_salts)}", **more)
        assert answer.cached == 0
        return answer

    def tokens(self, text):
        return self.request("POST", "/tokenize", {"content": text, "add_special": True}).json["tokens"]

    def flush(self):
        return self.request("POST", "/admin/cache/flush")

    def stats(self):
        return self.request("GET", "/stats").json

    def assert_alive(self):
        assert self.request("GET", "/v1/models").status == 200
        assert self.complete("Rivers:").text != ""

    # --- the end ---
    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=120):
        return self.process.wait(timeout)

    def stop(self):
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        self.process.kill()
        self.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.log_file.close()

    def log_text(self):
        return self.log.read_text()


def until(condition, seconds=60):
    """Asks again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def serve_command(cache_dir, *options, model=SMOL):
    """Without --preload nothing is read before a request asks for it, so that tests can say where its tokens came from."""
    settings = {"--port": "0", "--cache-dir": str(cache_dir), "--ctx": "4096", "--threads": "1",
                "--block-tokens": str(BLOCK), "--preload": "0", **dict(zip(options[::2], options[1::2]))}
    return [BINARY, "serve", str(model), *itertools.chain(*settings.items())]


def clean_environment():
    """Ours without settings of a person's own server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("EVERWARM_")}


def run(*arguments, timeout=120):
    """A command that must end by itself."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=timeout,
                          env=clean_environment())


def document(tokens, word):
    """About so many tokens; only its first line holds the word."""
    lines = [f"The code word is {word}."]
    # A line has about 24 tokens.
    for i in range(1, max(2, tokens // 24)):
        lines.append(f"Line {i}: item {i * 7919 % 1000} was moved to shelf {i * 104729 % 97}.")
    return "\n".join(lines)


def question(tokens, word):
    """A conversation of one turn about a document."""
    return [{"role": "user", "content": document(tokens, word) + "\nWhich code word?"}]


def cache_files(directory):
    """Files of blocks, as paths; a running server may remove some meanwhile."""
    found = []
    for path in pathlib.Path(directory).rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_size >= 4096:
                found.append(path)
    return sorted(found)
