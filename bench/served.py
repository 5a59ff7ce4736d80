"""Benchmarks of the whole server, from outside, beside llama-server of the pinned tree."""
import contextlib
import os
import shutil
import tempfile
import time

from harness import Everwarm, GEMMA3, LlamaServer, SMOLLM2, copy_cache, directory_bytes, document
from measure import alternate, spread

THREADS = 2


@contextlib.contextmanager
def workspace():
    path = tempfile.mkdtemp(prefix="everwarm_bench_")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def conversation(tokens, word):
    return [{"role": "user", "content": document(tokens, word) + "\n\nWhich code word?"}]


def next_turn(history, reply):
    return history + [{"role": "assistant", "content": reply}, {"role": "user", "content": "And again?"}]


def everwarm(work, options=None, cache_dir="cache", model=SMOLLM2, environment=None):
    return Everwarm(model, cache_dir if cache_dir == "off" else f"{work}/{cache_dir}", f"{work}/everwarm.log",
                    {"--ctx": 8192, "--threads": THREADS, **(options or {})}, environment=environment)


def llama(work, options=None, model=SMOLLM2):
    return LlamaServer(model, f"{work}/llama.log",
                       {"-c": 8192, "-t": THREADS, "-np": 1, "-fa": "on", **(options or {})})


def restart(table, runs, model=SMOLLM2, aim=60):
    """Next turn of a 6,000-token conversation after a restart, against a slot file restored by hand.

    `aim`: how many times sooner than cold the first token is to come.
    """
    with workspace() as work:
        history = conversation(6000, "zebra")
        ours = everwarm(work, model=model)
        ours_cold = ours.chat(history, 16)
        turn = next_turn(history, ours_cold["text"])
        ours.flush()
        # Each restart finds the first turn and nothing of the next.
        copy_cache(f"{work}/cache", f"{work}/at_flush")
        before = ours.chat(turn, 16)
        ours.kill()
        peer = llama(work, {"--slot-save-path": work}, model)
        peer_cold = peer.chat(history, 16)
        peer_turn = next_turn(history, peer_cold["text"])
        assert peer.request("POST", "/slots/0?action=save", {"filename": "slot.bin"})[0] == 200
        peer.kill()
        answers = set()

        def ours_once(options=None):
            shutil.rmtree(f"{work}/cache")
            copy_cache(f"{work}/at_flush", f"{work}/cache")
            os.sync()  # what was flushed is on the disk, and nothing of the copy is still on its way there
            server = everwarm(work, options, model=model)
            result = server.chat(turn, 16)
            server.kill()
            answers.add(result["text"])
            return result["ttft"]

        def peer_once():
            server = llama(work, {"--slot-save-path": work}, model)
            began = time.monotonic()
            assert server.request("POST", "/slots/0?action=restore", {"filename": "slot.bin"})[0] == 200
            restored = time.monotonic() - began
            result = server.chat(peer_turn, 16)
            server.kill()
            return restored + result["ttft"]

        results = alternate(runs, ours=ours_once, on_request=lambda: ours_once({"--preload": 0}), peer=peer_once)
        ours_restart, on_request, peer_restart = (spread(results[side]) for side in ("ours", "on_request", "peer"))
        table.add("cold, first token", ours_cold["ttft"], peer_cold["ttft"], peer_cold["ttft"] / ours_cold["ttft"], unit="s")
        ratio = ours_cold["ttft"] / ours_restart["median"]
        table.add("restart: cold over next turn", ours_restart, None, ratio, f">= {aim}", "s", ratio >= aim)
        ratio = ours_restart["median"] / peer_restart["median"]
        table.add("restart: next turn / slot file by hand + next turn", ours_restart, peer_restart, ratio, "<= 1", "s", ratio <= 1)
        ratio = on_request["median"] / peer_restart["median"]
        table.add("restart: the same, read when it is asked for (--preload 0)", on_request, peer_restart, ratio, "<= 1", "s", ratio <= 1)
        table.add("restart: same text as before", int(answers == {before["text"]}), good=answers == {before["text"]})


def restart_window(table, runs):
    """The same for a model with sliding windows."""
    restart(table, runs, GEMMA3, 40)


def switch(table, runs):
    """Next turn after switching among four 6,000-token conversations in RAM."""
    with workspace() as work:
        ours, peer = everwarm(work), llama(work, {"--cache-ram": 8192})
        turns = {}
        for name, server in (("ours", ours), ("peer", peer)):
            turns[name] = []
            for word in ("zebra", "yak", "xerus", "wombat"):
                history = conversation(6000, word)
                turns[name].append(next_turn(history, server.chat(history, 16)["text"]))

        def once(name, server):
            def run():
                seconds = []
                for i, turn in enumerate(turns[name]):
                    result = server.chat(turn, 16)
                    seconds.append(result["ttft"])
                    turns[name][i] = next_turn(turn, result["text"])
                return sorted(seconds)[len(seconds) // 2]
            return run

        results = alternate(runs, ours=once("ours", ours), peer=once("peer", peer))
        ours.kill()
        peer.kill()
        ours_turn, peer_turn = spread(results["ours"]), spread(results["peer"])
        ratio = peer_turn["median"] / ours_turn["median"]
        table.add("switch among 4: next turn, llama-server over ours", ours_turn, peer_turn, ratio, ">= 2", "s", ratio >= 2)


def tier(table, runs):
    """Decode with the SSD tier on against off."""
    with workspace() as work:
        on, off = everwarm(work), everwarm(work, cache_dir="off")
        prompts = {"on": 0, "off": 0}

        def once(name, server):
            def run():
                # A new prompt each time, so that each reply is written while it decodes.
                prompts[name] += 1
                history = conversation(1000, f"word{prompts[name]}")
                return server.chat(history, 256, ignore_eos=True)["decode"]
            return run

        results = alternate(runs, on=once("on", on), off=once("off", off))
        on.kill()
        off.kill()
        with_tier, without = spread(results["on"]), spread(results["off"])
        ratio = with_tier["median"] / without["median"]
        table.add("decode with the SSD tier / without", with_tier, without, ratio, ">= 0.99", "tok/s", ratio >= 0.99)


def disk(table, runs):
    """Bytes on disk for a conversation of 10 growing turns, over the KV bytes of its last state."""
    del runs
    with workspace() as work:
        server = everwarm(work)
        history = conversation(600, "zebra")
        for turn in range(10):
            result = server.chat(history, 48)
            history += [{"role": "assistant", "content": result["text"]},
                        {"role": "user", "content": f"Question {turn}: what is in row {turn * 3}?"}]
        server.flush()
        status, stats = server.request("GET", "/stats")
        assert status == 200, stats
        tokens = result["prompt"] + result["usage"]["completion_tokens"] - 1
        state = tokens * stats["model"]["kv_bytes_per_token"]
        server.stop()
        used = directory_bytes(f"{work}/cache")
        ratio = used / state
        table.add(f"disk: 10 turns, {tokens} tokens, bytes / KV of the last state", used, state, ratio, "<= 1.1", "B", ratio <= 1.1)


def memory(table, runs):
    """Peak memory of a restore beyond the blocks that are live after it."""
    del runs
    with workspace() as work:
        server = everwarm(work)
        history = conversation(6000, "zebra")
        turn = next_turn(history, server.chat(history, 16)["text"])
        server.flush()
        server.kill()
        server = everwarm(work, {"--preload": 0})
        # Buffers of the computation exist before the restore: the same step sizes, another text.
        server.chat(next_turn(conversation(200, "yak"), "a"), 16)
        server.chat(next_turn(conversation(200, "yak"), "a"), 16)
        before = server.memory("VmRSS")
        live_before = server.request("GET", "/stats")[1]["ram_cache"]["used_bytes"]
        server.reset_peak_memory()
        server.chat(turn, 1)
        peak = server.memory("VmHWM")
        live = server.request("GET", "/stats")[1]["ram_cache"]["used_bytes"] - live_before
        server.kill()
        beyond = (peak - before - live) / (1 << 20)
        table.add(f"memory: peak of restoring {live >> 20} MiB beyond it", beyond, None, None, "< 16", "MiB", beyond < 16)
