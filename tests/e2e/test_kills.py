"""SIGKILL at random moments, under load, on a real file system: see kills.py."""
import os

import everwarm
import kills

# More by `make torture`.
CYCLES = int(os.environ.get("EVERWARM_KILLS", "200"))


def check(torture, cycles):
    assert torture.run(cycles) == []
    assert torture.counts["kills"] >= cycles
    assert torture.counts["replies"] > 0
    assert torture.counts["wrong replies"] == 0
    assert torture.counts["acknowledged tokens lost"] == 0
    print(dict(torture.counts))


def test_what_was_acknowledged_survives_every_kill(tmp_path, tiny):
    torture = kills.Torture(tmp_path, tiny, seed=1)
    check(torture, CYCLES * 6 // 10)
    assert torture.counts["acknowledged tokens"] > 0
    assert torture.counts["replies from the disk"] > 0
    assert torture.counts["replies that say all is durable"] > 0


def test_a_window_model_survives_every_kill(tmp_path, tiny_window):
    torture = kills.Torture(tmp_path, tiny_window, seed=2, kind="window")
    check(torture, CYCLES // 10)


def test_a_model_with_states_survives_every_kill(tmp_path, tiny_recurrent):
    torture = kills.Torture(tmp_path, tiny_recurrent, seed=5, kind="recurrent")
    check(torture, CYCLES // 10)
    assert torture.counts["acknowledged tokens"] > 0


def test_a_cap_that_is_too_small_serves_nothing_wrong_and_holds(tmp_path, tiny):
    cap = 1 << 20
    torture = kills.Torture(tmp_path, tiny, seed=3, options=("--ssd-cache", "1MiB"), durable=False)
    for _ in range(CYCLES * 3 // 20):
        torture.cycle()
        assert torture.problems == []
        assert torture.total_bytes() <= cap
    assert torture.counts["wrong replies"] == 0


def test_a_real_model_survives_kills(tmp_path):
    torture = kills.Torture(tmp_path, everwarm.SMOL, seed=4, count=4, exact=False, life=4)
    check(torture, CYCLES // 20)
