"""A thousand requests from sixteen clients, with less RAM than they need and clients that leave."""
import json
import os
import random
import threading
import time

from everwarm import BLOCK, document

CLIENTS = 16
# Fewer where a sanitizer makes each of them slow.
REQUESTS = int(os.environ.get("EVERWARM_LOAD_REQUESTS", "1000"))
MAX_TOKENS = 14
FAMILIES = 4
QUESTIONS = 6
SALTS = 6
RAM_MIB = 24  # a tenth of what all prompts and replies take
# Of one request, in seconds: the first sixteen come at once and are all cold, which takes a sanitizer's server minutes.
PATIENCE = int(os.environ.get("EVERWARM_LOAD_PATIENCE", "300"))


def prompts():
    return [f"{document(260, f'family {family}')}\nQuestion {question}: what is on shelf {question * 5}?\nAnswer:"
            for family in range(FAMILIES) for question in range(QUESTIONS)]


class Load:
    def __init__(self, server, expected):
        self.server = server
        self.expected = expected
        self.prompts = list(expected)
        self.lock = threading.Lock()
        self.left = REQUESTS
        self.wrong = []
        self.cut = 0

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def client(self, seed):
        choose = random.Random(seed)
        while self.take():
            prompt = choose.choice(self.prompts)
            tokens = choose.randint(1, MAX_TOKENS)
            body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                    "cache_salt": f"salt {choose.randrange(SALTS)}"}
            try:
                if choose.random() < 0.5:
                    self.plain(prompt, tokens, body)
                else:
                    self.streamed(prompt, tokens, body, choose)
            except Exception as error:  # noqa: BLE001: whatever it is, it is wrong
                with self.lock:
                    self.wrong.append(f"{type(error).__name__}: {error}")

    def plain(self, prompt, tokens, body):
        answer = self.server.request("POST", "/v1/completions", body, timeout=PATIENCE)
        assert answer.text == self.expected[prompt][tokens], (answer.text, tokens)

    def streamed(self, prompt, tokens, body, choose):
        stream = self.server.stream("/v1/completions", body, timeout=PATIENCE)
        assert stream.status == 200, stream.response.read()
        # Some leave, before the first piece or later.
        leave_after = choose.choice([None, None, None, 0, 1, 3])
        text, pieces = "", 0
        if leave_after != 0:
            for piece in stream.pieces():
                text += piece
                pieces += 1
                if pieces == leave_after:
                    break
        stream.close()
        if leave_after is None:
            assert text == self.expected[prompt][tokens], (text, tokens)
        else:
            self.cut += 1
            assert self.expected[prompt][MAX_TOKENS].startswith(text)


def test_a_thousand_mixed_requests_with_a_tenth_of_the_ram(start):
    server = start("--threads", "2", "--ram-cache", f"{RAM_MIB}MiB", "--ssd-cache", "2GiB")
    expected = {prompt: {tokens: None for tokens in range(1, MAX_TOKENS + 1)} for prompt in prompts()}
    for prompt, texts in expected.items():
        for tokens in texts:
            texts[tokens] = server.complete(prompt, tokens, ignore_eos=True).text
    state = server.stats()["ram_cache"]
    load = Load(server, expected)
    began = time.monotonic()
    threads = [threading.Thread(target=load.client, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    print(json.dumps({"seconds": time.monotonic() - began, "cut": load.cut, **server.stats()["requests"]}))
    assert load.wrong == []
    assert server.flush().status == 200
    deadline = time.monotonic() + 30
    while True:
        stats = server.stats()
        ram = stats["ram_cache"]
        settled = stats["requests"]["running"] == 0 and ram["dirty_blocks"] == 0 and ram["used_bytes"] <= RAM_MIB << 20
        if settled or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert stats["requests"]["failed"] == 0
    assert stats["requests"]["waiting"] == stats["requests"]["running"] == 0
    assert stats["requests"]["cancelled"] > 0
    # Only what is cached is held, and that within the target.
    assert ram["used_bytes"] <= RAM_MIB << 20
    assert ram["used_bytes"] == ram["cached_blocks"] * BLOCK * stats["model"]["kv_bytes_per_token"]
    assert state["target_bytes"] == RAM_MIB << 20
    assert stats["ssd_cache"]["bytes"] > 5 * (RAM_MIB << 20)
    assert stats["ssd_cache"]["damaged"] == 0
    # An end of its own: a sanitizer's server looks for leaks, and fails with one.
    assert server.stop() == 0, server.log_text()
