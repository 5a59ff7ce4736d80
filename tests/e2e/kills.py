"""A server that is killed again and again while clients talk to it.

Used by the tests (test_kills.py) and, for as long as one likes, by tools/torture.py.
"""
import collections
import dataclasses
import http.client
import pathlib
import random
import subprocess
import threading
import time

import everwarm

WORDS = ("zebra", "otter", "heron", "lynx", "tapir", "newt", "ibis", "mole")


@dataclasses.dataclass
class Conversation:
    """A prompt, and the one reply it can get."""
    messages: list
    # Of which it is; empty: of none.
    session: str = ""
    reply: object = None
    # Tokens of the prompt that are found again once it is known.
    reusable: int = 0
    # Before a flush that said 200, in some life of the server.
    acknowledged: bool = False
    # Tokens of prompt and reply, as the end of some reply said.
    durable: int = 0


def conversations(count, seed):
    """First turns, and second turns of some of them; several share a beginning."""
    dice = random.Random(seed)
    result = []
    for i in range(count):
        first = everwarm.question(dice.choice((60, 120, 250, 500)), f"{WORDS[i % len(WORDS)]} {i // 2}")
        session = f"agent {i % 5}" if i % 3 else ""
        result.append(Conversation(first, session))
        if i % 2:
            result.append(Conversation(first + [{"role": "assistant", "content": "It is in the first line."},
                                                {"role": "user", "content": "Which shelf comes in line 3?"}], session))
    return result


class Torture:
    """Kills servers of one model over one cache directory. Everything wrong is in `problems`."""
    # A model with states leaves none so near to another one (publication_points.cc).
    NEAR = 16

    def __init__(self, directory, model, seed, count=24, options=(), durable=True, kind="full", exact=True, max_tokens=8,
                 life=0.8):
        self.directory = pathlib.Path(directory)
        self.cache_dir = self.directory / "cache"
        self.model = model
        self.dice = random.Random(seed)
        self.options = tuple(options)
        # False: the cap is too small to keep all, so nothing need be found again.
        self.durable = durable
        # "full": goes on from every token; "window" and "recurrent": from where something was published.
        self.kind = kind
        # False: products differ in their last bits with the rows that are computed together; texts are compared then.
        self.exact = exact
        self.max_tokens = max_tokens
        # Seconds under load, at most.
        self.life = life
        self.counts = collections.Counter()
        self.problems = []
        self.lock = threading.Lock()
        self.conversations = conversations(count, seed)
        server = everwarm.Server("off", *self.options, model=model, log=self.directory / "cold.log")
        for conversation in self.conversations:
            salt = f"cold {id(conversation)}"
            cold = server.chat(conversation.messages, max_tokens, cache_salt=salt)
            assert cold.cached == 0
            conversation.reply = self.reply(cold)
            conversation.reusable = server.chat(conversation.messages, max_tokens, cache_salt=salt).cached
        server.close()
        if exact:
            # Else one could be served what is another's, and nobody would see it.
            assert len({conversation.reply for conversation in self.conversations}) == len(self.conversations)

    def reply(self, answer):
        return answer.exact if self.exact else answer.text

    def problem(self, what):
        with self.lock:
            self.problems.append(what)

    def run(self, cycles, until=None):
        for _ in range(cycles):
            if self.problems or (until is not None and time.monotonic() > until):
                break
            self.cycle()
        return self.problems

    def cycle(self):
        """One life of the server."""
        if self.dice.random() < 0.15:
            self.kill_while_it_starts()
        server = everwarm.Server(self.cache_dir, *self.options, *self.random_options(), model=self.model,
                                 log=self.directory / "server.log")
        try:
            self.check_start(server)
            self.check_acknowledged(server)
            self.load_until_killed(server)
        finally:
            server.close()
        self.counts["kills"] += 1

    def random_options(self):
        """RAM so small that blocks come from the disk, or none, or plenty; read by requests, or before them."""
        ram, preload = self.dice.choice((("0", "0"), ("1MiB", "0"), ("1MiB", "512KiB"), ("1GiB", "0"), ("1GiB", "1GiB")))
        return ("--ram-cache", ram, "--preload", preload)

    def kill_while_it_starts(self):
        command = everwarm.serve_command(self.cache_dir, *self.options, model=self.model)
        with open(self.directory / "server.log", "ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log,
                                       env=everwarm.clean_environment())
        time.sleep(self.dice.uniform(0, 0.15))
        process.kill()
        process.wait()
        self.counts["kills"] += 1
        self.counts["kills while it starts"] += 1

    def check_start(self, server):
        left = [path for path in self.cache_dir.rglob("tmp-*")]
        if left:
            self.problem(f"temporary files after a start: {left}")
        if server.stats()["ssd_cache"]["damaged"]:
            self.problem("a kill left damaged files under final names")

    def promised(self, conversation):
        """Tokens of the prompt that must be found again."""
        tokens = 0
        if conversation.acknowledged:
            tokens = conversation.reusable - (self.NEAR if self.kind == "recurrent" else 0)
        if self.kind == "full":
            # Any beginning of what is durable can be gone on from; a reply may speak of more than the prompt.
            tokens = max(tokens, min(conversation.durable, conversation.reusable))
        return tokens

    def check_acknowledged(self, server):
        known = [conversation for conversation in self.conversations if self.promised(conversation) > 0]
        for conversation in self.dice.sample(known, min(3, len(known))):
            promised = self.promised(conversation)
            answer = self.ask(server, conversation)
            if answer is not None and self.durable:
                lost = max(0, promised - answer.cached)
                self.counts["acknowledged tokens"] += promised
                self.counts["acknowledged tokens lost"] += lost
                if lost:
                    self.problem(f"{lost} of {promised} acknowledged tokens are lost")

    def ask(self, server, conversation, wait=False):
        """None when the server went away meanwhile. `wait`: until all of it is durable."""
        headers = {"X-Everwarm-Wait-Durable": "1"} if wait else None
        try:
            answer = server.chat(conversation.messages, self.max_tokens, headers, session_id=conversation.session)
        except (OSError, http.client.HTTPException):
            return None
        if answer.status != 200:
            self.problem(f"{answer.status}: {answer.body}")
            return None
        with self.lock:
            self.counts["replies"] += 1
            self.counts["replies from the disk"] += answer.from_ssd > 0
            durable = answer.usage["everwarm"]["durable_tokens"]
            self.counts["replies that say all is durable"] += durable >= answer.prompt_tokens
            conversation.durable = max(conversation.durable, durable)
        if self.reply(answer) != conversation.reply:
            with self.lock:
                self.counts["wrong replies"] += 1
            self.problem(f"{self.reply(answer)} instead of {conversation.reply}, {answer.cached} cached")
        return answer

    def load_until_killed(self, server):
        """Three clients and one who flushes, until the kill."""
        answered = []

        def client(seed):
            dice = random.Random(seed)
            while server.process.poll() is None:
                conversation = dice.choice(self.conversations)
                if self.ask(server, conversation, wait=dice.random() < 0.3) is not None:
                    with self.lock:
                        answered.append(conversation)

        def flusher(seed):
            dice = random.Random(seed)
            while server.process.poll() is None:
                time.sleep(dice.uniform(0, 0.2))
                with self.lock:
                    before = list(answered)
                try:
                    flush = server.flush()
                except (OSError, http.client.HTTPException):
                    return
                with self.lock:
                    self.counts["flushes"] += 1
                if flush.status == 200:
                    for conversation in before:
                        conversation.acknowledged = True
                elif self.durable:
                    self.problem(f"flush: {flush.status} {flush.body}")

        threads = [threading.Thread(target=client, args=(self.dice.random(),)) for _ in range(3)]
        threads.append(threading.Thread(target=flusher, args=(self.dice.random(),)))
        for thread in threads:
            thread.start()
        time.sleep(self.dice.uniform(0, self.life))
        server.kill()
        for thread in threads:
            thread.join()

    def total_bytes(self):
        """Of the cache directory, as a cap counts them."""
        paths = [self.cache_dir, *self.cache_dir.rglob("*")]
        return sum(path.lstat().st_blocks * 512 for path in paths)
