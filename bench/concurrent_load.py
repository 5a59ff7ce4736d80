"""Benchmarks of many conversations at once, beside llama-server of the pinned tree."""
import itertools
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness import document
from measure import alternate, spread
from served import conversation, everwarm, llama, workspace

# A new text each time, so that nobody finds it in a cache.
_words = (f"word{i}" for i in itertools.count())


def at_once(calls):
    """Runs all at the same time; returns their results and the seconds until the last is done."""
    with ThreadPoolExecutor(len(calls)) as pool:
        began = time.monotonic()
        results = [future.result() for future in [pool.submit(call) for call in calls]]
        return results, time.monotonic() - began


def streams(table, runs):
    """Four streams at 2,000 tokens of context each: tokens per second together."""
    with workspace() as work:
        servers = {"ours": everwarm(work), "peer": llama(work, {"-np": 4})}
        prompts = [conversation(1700, word) for word in ("zebra", "yak", "xerus", "wombat")]
        contexts = {}
        for name, server in servers.items():
            contexts[name] = [server.chat(prompt, 1)["prompt"] for prompt in prompts]

        def once(server):
            def run():
                results, seconds = at_once([lambda prompt=prompt: server.chat(prompt, 128, ignore_eos=True)
                                            for prompt in prompts])
                return sum(result["usage"]["completion_tokens"] for result in results) / seconds
            return run

        results = alternate(runs, **{name: once(server) for name, server in servers.items()})
        for server in servers.values():
            server.kill()
        ours, peer = spread(results["ours"]), spread(results["peer"])
        ratio = ours["median"] / peer["median"]
        table.add(f"4 streams at {min(contexts['ours'])} tokens / llama-server -np 4", ours, peer, ratio, ">= 1.3", "tok/s",
                  ratio >= 1.3)


def agents(table, runs):
    """Eight agents with one shared prefix of 4,000 tokens and own questions, at once: until all have answered."""
    with workspace() as work:
        servers = {"ours": everwarm(work), "peer": llama(work, {"-np": 4, "-c": 20480})}
        prompts = []

        def once(server):
            def run():
                shared = document(3450, next(_words))
                calls = [lambda i=i: server.chat([{"role": "user", "content": f"{shared}\n\nAgent {i}: what is on shelf {i * 7}?"}], 32)
                         for i in range(8)]
                results, seconds = at_once(calls)
                prompts.append(min(result["prompt"] for result in results))
                return seconds
            return run

        results = alternate(runs, **{name: once(server) for name, server in servers.items()})
        for server in servers.values():
            server.kill()
        ours, peer = spread(results["ours"]), spread(results["peer"])
        ratio = ours["median"] / peer["median"]
        table.add(f"8 agents on {min(prompts)} shared tokens / llama-server -np 4", ours, peer, ratio, "<= 0.35", "s", ratio <= 0.35)


def beside_a_prompt(server, tokens):
    """A running stream's gaps before and while a cold prompt is computed, and the seconds of that prompt alone and beside it."""
    stop = threading.Event()
    times = []

    def stream():
        while not stop.is_set():
            began = len(times)
            server.chat(conversation(300, "stream"), 400, ignore_eos=True, on_piece=lambda: times.append(time.monotonic()))
            assert len(times) > began

    def prompt():
        return server.chat(conversation(tokens, next(_words)), 1)["ttft"]

    alone = prompt()
    runner = threading.Thread(target=stream)
    runner.start()
    while len(times) < 150:
        time.sleep(0.05)
    before = time.monotonic()
    beside = prompt()
    after = time.monotonic()
    stop.set()
    runner.join()
    gaps = [(end, end - start) for start, end in zip(times, times[1:])]
    quiet = [gap for end, gap in gaps[20:] if end < before]
    busy = sorted(gap for end, gap in gaps if before < end < after)
    busy = busy or [beside]
    return {"alone": alone, "beside": beside, "gap": statistics.median(quiet), "busy": busy[len(busy) * 95 // 100],
            "middle": statistics.median(busy), "longest": busy[-1]}


def fairness(table, runs):
    """A running stream while a cold prompt of 6,000 tokens is computed: the gaps between its tokens, and the prompt's time."""
    with workspace() as work:
        servers = {"ours": everwarm(work), "peer": llama(work, {"-np": 2, "-c": 16384})}
        results = alternate(runs, **{name: lambda server=server: beside_a_prompt(server, 5200) for name, server in servers.items()})
        for server in servers.values():
            server.kill()
        for what, of, by, target in (("gap between tokens, 95 of 100 / alone", "busy", "gap", 3), ("prompt beside it / alone", "beside", "alone", 1.3)):
            ours, peer = ([run[of] / run[by] for run in results[name]] for name in ("ours", "peer"))
            ratio = statistics.median(ours)
            table.add(f"stream beside a cold prompt: {what}", spread(ours), spread(peer), ratio, f"<= {target}", "times", ratio <= target)
        for what, key in (("gap alone", "gap"), ("gap, 50 of 100", "middle"), ("gap, 95 of 100", "busy"),
                          ("longest gap", "longest"), ("prompt alone", "alone"), ("prompt beside it", "beside")):
            table.add(f"  {what}", spread([run[key] for run in results["ours"]]), spread([run[key] for run in results["peer"]]), unit="s")
