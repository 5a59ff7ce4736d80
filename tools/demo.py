#!/usr/bin/env python3
"""The main job, seen from outside: a conversation survives a restart.

Asks the real server about a long document, goes on with the conversation, makes it durable,
kills the server with SIGKILL, starts it again and asks the same next turn once more. Prints the
time to the first token and the cached tokens of each turn; fails if the restarted server answers
differently, or computes what it had stored.
"""
import argparse
import os
import shutil
import sys
import tempfile

from harness import EVERWARM, SMOLLM2, Everwarm, ServerFailed, document


def say(text):
    print(text, file=sys.stderr, flush=True)


def row(name, result):
    return f"{name:<34}{result['ttft'] * 1000:>12.0f} ms{result['prompt']:>10}{result['cached']:>10}"


def main_job(start, tokens):
    """Runs the turns; returns what went wrong, or nothing."""
    server = start()
    history = [{"role": "user", "content": document(tokens, "zebra") + "\n\nWhat kinds of fruit are listed above?"}]
    say(f"reading a document of about {tokens} tokens for the first time ...")
    cold = server.chat(history, 48)
    history += [{"role": "assistant", "content": cold["text"]},
                {"role": "user", "content": "And where do they come from?"}]
    warm = server.chat(history, 48)
    flushed = server.flush()
    say(f"the conversation is on the disk ({flushed['entries']} blocks); kill -9 ...")
    server.kill()
    server = start()
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

    def start():
        say("starting the server ...")
        servers.append(Everwarm(arguments.model, os.path.join(work, "cache"), os.path.join(work, "server.log"),
                                {"--ctx": arguments.tokens + 2048}, arguments.server))
        return servers[-1]

    try:
        wrong = main_job(start, arguments.tokens)
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
