#!/usr/bin/env python3
"""The main job, seen from outside: a conversation survives a restart.

Asks the real server about a long document, makes that durable, goes on with the conversation, and
kills the server with SIGKILL. Then starts it again on what was on the disk at the flush, so that it
knows no more than the first turn, and asks the same next turn. Prints the time to the first token
and the cached tokens of each turn; fails if the restarted server answers differently, or computes
what it had stored.
"""
import argparse
import shutil
import sys
import tempfile

from harness import EVERWARM, SMOLLM2, Everwarm, ServerFailed, copy_cache, document


def say(text):
    print(text, file=sys.stderr, flush=True)


def row(name, result):
    return f"{name:<34}{result['ttft'] * 1000:>12.0f} ms{result['prompt']:>10}{result['cached']:>10}"


def main_job(start, work, tokens):
    """Runs the turns; returns what went wrong, or nothing."""
    server = start(f"{work}/cache")
    history = [{"role": "user", "content": document(tokens, "zebra") + "\n\nWhat kinds of fruit are listed above?"}]
    say(f"reading a document of about {tokens} tokens for the first time ...")
    cold = server.chat(history, 48)
    history += [{"role": "assistant", "content": cold["text"]},
                {"role": "user", "content": "And where do they come from?"}]
    flushed = server.flush()
    copy_cache(f"{work}/cache", f"{work}/at_flush")
    say(f"the conversation is on the disk ({flushed['entries']} blocks); next turn, then kill -9 ...")
    warm = server.chat(history, 48)
    server.kill()
    server = start(f"{work}/at_flush")
    restarted = server.chat(history, 48)
    code = server.stop()

    print(f"\n{'turn':<34}{'first token':>15}{'prompt':>10}{'cached':>10}")
    print(row("first question (cold)", cold))
    print(row("next turn (warm)", warm))
    print(row("the same after kill -9 and restart", restarted))
    same = restarted["text"] == warm["text"]
    print(f"\nAfter the restart the first token came {cold['ttft'] / restarted['ttft']:.0f} times sooner than cold; "
          f"the answer is {'the same' if same else 'DIFFERENT'}:")
    print("  " + restarted["text"].strip().replace("\n", "\n  "))
    if not same:
        return f"before the restart the answer was: {warm['text']}"
    if restarted["cached"] < warm["cached"]:
        return f"only {restarted['cached']} of {warm['cached']} cached tokens were found again"
    if code != 0:
        return f"the server ended with {code} on SIGTERM"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=EVERWARM, help="the program")
    parser.add_argument("--model", default=SMOLLM2, help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=6000, help="length of the document")
    arguments = parser.parse_args()

    work = tempfile.mkdtemp(prefix="everwarm_demo_")
    servers = []

    def start(cache_dir):
        say("starting the server ...")
        servers.append(Everwarm(arguments.model, cache_dir, f"{work}/server.log",
                                {"--ctx": arguments.tokens + 2048}, arguments.server))
        return servers[-1]

    try:
        wrong = main_job(start, work, arguments.tokens)
    except ServerFailed as failure:
        wrong = str(failure)
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(work, ignore_errors=True)
    if wrong:
        print(f"\nFAILED: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
