"""How much of a chat is computed again when every turn, and every regeneration, follows a restart."""
from harness import Everwarm, GEMMA3, LlamaServer
from served import THREADS, conversation, next_turn, workspace

SPAN = 64


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
    """Tokens computed in turns 2 to 5 of a chat with a window model, and in a regeneration of each, all after restarts."""
    del runs
    with workspace() as work:
        ours, peer = _play(Ours(work, GEMMA3)), _play(Peer(work, GEMMA3))
    for turn, ((new, computed, again), (_, peer_computed, peer_again)) in enumerate(zip(ours, peer), start=2):
        table.add(f"turn {turn} after a restart: computed, {new} new", computed, peer_computed, None, f"<= {new + SPAN}", "tokens",
                  computed <= new + SPAN)
        table.add(f"turn {turn} regenerated after a restart: computed", again, peer_again, None, f"<= {1 + SPAN}", "tokens",
                  again <= 1 + SPAN)
