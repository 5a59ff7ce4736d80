"""How much of a chat is computed again when every turn, and every regeneration, follows a restart."""
from harness import Everwarm, GEMMA3, LlamaServer
from served import THREADS, conversation, next_turn, workspace

SPAN = 64
# Tokens between two states of a recurrent model.
EVERY = 512
RECURRENT = ("lfm2", "granitehybrid", "qwen35")


class Ours:
    def __init__(self, work, model):
        self._start = lambda: Everwarm(model, f"{work}/cache", f"{work}/everwarm.log", {"--ctx": 8192, "--threads": THREADS})
        self.server = self._start()

    def restart(self):
        self.server.flush()
        self.server.kill()
        self.server = self._start()


class Peer:
    """llama-server, whose slot is saved before each end and restored after each start."""

    def __init__(self, work, model):
        self._start = lambda: LlamaServer(model, f"{work}/llama.log", {"-c": 8192, "-t": THREADS, "-np": 1, "-fa": "on",
                                                                       "--slot-save-path": work})
        self.server = self._start()

    def _slot(self, action):
        status, answer = self.server.request("POST", f"/slots/0?action={action}", {"filename": "turns.bin"})
        assert status == 200, answer

    def restart(self):
        self._slot("save")
        self.server.kill()
        self.server = self._start()
        self._slot("restore")


def _play(side):
    """Of turns 2 to 5: new tokens, those computed for the turn, and those computed for the same again."""
    history = conversation(2000, "zebra")
    result = side.server.chat(history, 16)
    rows = []
    for _ in range(2, 6):
        before = result["prompt"] + result["usage"]["completion_tokens"]
        history = next_turn(history, result["text"])
        side.restart()
        result = side.server.chat(history, 16)
        side.restart()
        again = side.server.chat(history, 16)
        rows.append((result["prompt"] - before, result["prompt"] - result["cached"], again["prompt"] - again["cached"]))
    side.server.kill()
    return rows


def turns(table, runs):
    """Tokens computed in turns 2 to 5 of a chat, and in a regeneration of each, all after restarts: with a window model, and with tiny
    recurrent ones of random weights."""
    # Needs more than Python's own library, which other suites do without.
    import tiny_models

    del runs
    with workspace() as work:
        _compare(table, "gemma3", work, GEMMA3, SPAN)
    for architecture in RECURRENT:
        with workspace() as work:
            model = f"{work}/{architecture}.gguf"
            tiny_models.write(model, architecture)
            _compare(table, architecture, work, model, EVERY)


def _compare(table, name, work, model, slack):
    ours, peer = _play(Ours(work, model)), _play(Peer(work, model))
    for turn, ((new, computed, again), (_, peer_computed, peer_again)) in enumerate(zip(ours, peer), start=2):
        table.add(f"{name}: turn {turn} after a restart: computed, {new} new", computed, peer_computed, None, f"<= {new + slack}",
                  "tokens", computed <= new + slack)
        table.add(f"{name}: turn {turn} regenerated after a restart: computed", again, peer_again, None, f"<= {1 + slack}", "tokens",
                  again <= 1 + slack)
