"""Decode beside a disk that does not answer."""
import contextlib
import itertools
import pathlib
import threading
import time

from harness import ROOT
from measure import alternate, spread
from served import conversation, everwarm, workspace

LIBRARY = ROOT / "build/release/testing/libstalled_disk.so"
# Longer than any decode here: the disk answers nothing meanwhile.
STALL_SECONDS = 30


class StallingDisk:
    """A preloaded library that lets calls to a server's cache directory wait, when asked to."""

    def __init__(self, work):
        self.switch = pathlib.Path(work, "stall")
        self.count = pathlib.Path(work, "stalled_calls")
        self.environment = {"LD_PRELOAD": str(LIBRARY), "EVERWARM_STALL_DIR": f"{work}/cache",
                            "EVERWARM_STALL_SECONDS": str(STALL_SECONDS), "EVERWARM_STALL_WHILE": str(self.switch),
                            "EVERWARM_STALL_COUNT": str(self.count)}

    def calls(self):
        return self.count.stat().st_size if self.count.exists() else 0

    @contextlib.contextmanager
    def stalls(self):
        began = time.monotonic()
        self.switch.touch()
        try:
            yield
            assert time.monotonic() - began < STALL_SECONDS, "the stall was over before the measurement"
        finally:
            self.switch.unlink()


def stalled(table, runs):
    """Decode while a write and reads wait 30 s for the disk, against decode on a disk that answers."""
    with workspace() as work:
        disk = StallingDisk(work)
        server = everwarm(work, environment=disk.environment)
        on_disk = conversation(1000, "zebra")
        server.chat(on_disk, 16)
        server.flush()
        words = itertools.count()

        def decode():
            # A new prompt, so that there is something to write while it decodes.
            return server.chat(conversation(1000, f"word{next(words)}"), 512, ignore_eos=True)["decode"]

        def quick():
            assert server.request("POST", "/admin/drain", b"")[0] == 200
            return decode()

        def stalling():
            # Nothing of the other conversation is left in RAM.
            assert server.request("POST", "/admin/drain", b"")[0] == 200
            reader = threading.Thread(target=server.chat, args=(on_disk, 16))
            with disk.stalls():
                before = disk.calls()
                reader.start()
                while disk.calls() == before:
                    time.sleep(0.01)
                # It is computed when it has waited for long enough, and must not decode beside what is measured.
                reader.join()
                rate = decode()
                stats = server.request("GET", "/stats")[1]["ssd_cache"]
                assert stats["pending_stores"] > 0 and stats["pending_loads"] > 0, stats
            server.flush()
            return rate

        results = alternate(runs, stalling=stalling, quick=quick)
        server.kill()
        with_stall, without = spread(results["stalling"]), spread(results["quick"])
        ratio = with_stall["median"] / without["median"]
        table.add(f"decode beside a disk that stalls {STALL_SECONDS} s / one that answers", with_stall, without, ratio,
                  ">= 0.98", "tok/s", ratio >= 0.98)
