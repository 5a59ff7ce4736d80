"""Small models with random weights and a real vocabulary: a server of one starts in a blink."""
import sys

import everwarm

sys.path.insert(0, str(everwarm.ROOT / "tools"))

import tiny_models  # noqa: E402 (found by the line above)
from tiny_models import ARCHITECTURES, TOKENS, WINDOW, vocabulary  # noqa: E402, F401 (for the tests)

TEMPLATE = "tokenizer.chat_template"


def write(path, seed=1, changes=None, architecture="llama"):
    """Writes a model. `changes` maps names of the tokenizer's keys to other values."""
    tiny_models.write(path, architecture, seed=seed, changes=changes)
