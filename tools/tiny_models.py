#!/usr/bin/env python3
"""Makes tiny models with random weights, one GGUF for each architecture that runs here.

    tools/tiny_models.py DIR [--architecture NAME]... [--seed N] [--type q8_0|f32]

The vocabulary and the chat template are those of another model's file (SmolLM2's, unless --vocabulary names
one), so that the models take and give text; the same seed gives the same file. Head counts are odd where
an architecture lets them be. Matrices are Q8_0 by default, whose products do not depend on how many rows are
computed together, so that a reply never depends on what was cached.
"""
import argparse
import dataclasses
import functools
import pathlib

import gguf
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
VOCABULARY = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"

TOKENS = "tokenizer.ggml.tokens"
CONTEXT = 4096
WINDOW = 80
TYPES = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "f32": gguf.GGMLQuantizationType.F32}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Widths are multiples of 32, the length of a quantised block."""
    layers: int = 2
    width: int = 64
    feed_forward: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 0
    experts_used: int = 0


class Draft:
    """Keys and tensors of a model that is not written yet."""

    def __init__(self, architecture, shape, seed, kind):
        self.architecture = architecture
        self.shape = shape
        self.keys = {}
        self.tensors = {}
        self._random = numpy.random.default_rng(seed)
        self._kind = kind

    def key(self, name, value):
        """`name` without the architecture's; a float becomes an f32, an int an u32."""
        self.keys[f"{self.architecture}.{name}"] = value

    def usual_keys(self):
        shape = self.shape
        self.key("context_length", CONTEXT)
        self.key("embedding_length", shape.width)
        self.key("block_count", shape.layers)
        self.key("feed_forward_length", shape.feed_forward)
        self.key("attention.head_count", shape.heads)
        self.key("attention.head_count_kv", shape.kv_heads)
        self.key("attention.key_length", shape.head_dim)
        self.key("attention.value_length", shape.head_dim)
        self.key("rope.dimension_count", shape.head_dim)
        self.key("attention.layer_norm_rms_epsilon", 1e-5)
        if shape.experts:
            self.key("expert_count", shape.experts)
            self.key("expert_used_count", shape.experts_used)
            self.key("expert_feed_forward_length", shape.feed_forward)

    # --- tensors; names without ".weight" and ".bias" ---
    def matrix(self, name, inputs, outputs, *, count=(), scale=None, kind=None):
        """[*count, outputs, inputs], each row of about unit gain."""
        kind = self._kind if kind is None else kind
        values = self._normal((*count, outputs, inputs), 0, scale or 1.5 / inputs ** 0.5)
        if kind != gguf.GGMLQuantizationType.F32:
            values = gguf.quants.quantize(values, kind)
        self.tensors[name + ".weight"] = (values, kind)

    def vector(self, name, size, mean, deviation, *, suffix=".weight"):
        self.tensors[name + suffix] = (self._normal(size, mean, deviation), gguf.GGMLQuantizationType.F32)

    def norm(self, name, size=None):
        self.vector(name, size or self.shape.width, 1, 0.2)

    def bias(self, name, *size):
        self.vector(name, size, 0, 0.3, suffix=".bias")

    def _normal(self, size, mean, deviation):
        return (mean + deviation * self._random.standard_normal(size)).astype(numpy.float32)

    # --- parts of a layer; `prefix` is "blk.3." ---
    def attention(self, prefix, *, biases=()):
        shape = self.shape
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        for name, inputs, outputs in (("attn_q", shape.width, q), ("attn_k", shape.width, kv),
                                      ("attn_v", shape.width, kv), ("attn_output", q, shape.width)):
            self.matrix(prefix + name, inputs, outputs)
            if name in biases:
                self.bias(prefix + name, outputs)

    def head_norms(self, prefix):
        self.norm(prefix + "attn_q_norm", self.shape.head_dim)
        self.norm(prefix + "attn_k_norm", self.shape.head_dim)

    def feed_forward(self, prefix):
        width, inner = self.shape.width, self.shape.feed_forward
        self.matrix(prefix + "ffn_gate", width, inner)
        self.matrix(prefix + "ffn_up", width, inner)
        self.matrix(prefix + "ffn_down", inner, width)

    def experts(self, prefix, *, biases=False):
        width, inner, count = self.shape.width, self.shape.feed_forward, self.shape.experts
        self.matrix(prefix + "ffn_gate_inp", width, count, kind=gguf.GGMLQuantizationType.F32)
        if biases:
            self.bias(prefix + "ffn_gate_inp", count)
        for name, inputs, outputs in (("ffn_gate_exps", width, inner), ("ffn_up_exps", width, inner),
                                      ("ffn_down_exps", inner, width)):
            self.matrix(prefix + name, inputs, outputs, count=(count,))
            if biases:
                self.bias(prefix + name, count, outputs)

    def usual_layer(self, prefix, **attention):
        self.norm(prefix + "attn_norm")
        self.norm(prefix + "ffn_norm")
        self.attention(prefix, **attention)
        if self.shape.experts:
            self.experts(prefix)
        else:
            self.feed_forward(prefix)

    def prefixes(self):
        return [f"blk.{layer}." for layer in range(self.shape.layers)]


def _llama(draft):
    for prefix in draft.prefixes():
        draft.usual_layer(prefix)


def _gemma3(draft):
    draft.key("attention.sliding_window", WINDOW)
    draft.key("attention.sliding_window_pattern", 3)
    for prefix in draft.prefixes():
        draft.usual_layer(prefix)
        draft.head_norms(prefix)
        draft.norm(prefix + "post_attention_norm")
        draft.norm(prefix + "post_ffw_norm")


def _qwen2(draft):
    for prefix in draft.prefixes():
        draft.usual_layer(prefix, biases=("attn_q", "attn_k", "attn_v"))


def _qwen3(draft):
    for prefix in draft.prefixes():
        draft.usual_layer(prefix)
        draft.head_norms(prefix)


def _phi3(draft):
    shape = draft.shape
    rotated = 24
    draft.key("rope.dimension_count", rotated)
    draft.key("rope.scaling.original_context_length", CONTEXT // 2)
    draft.key("rope.scaling.attn_factor", 1.19)
    draft.vector("rope_factors_long", rotated // 2, 9, 2)
    draft.vector("rope_factors_short", rotated // 2, 1.3, 0.2)
    q = shape.heads * shape.head_dim
    for prefix in draft.prefixes():
        draft.norm(prefix + "attn_norm")
        draft.matrix(prefix + "attn_qkv", shape.width, q + 2 * shape.kv_heads * shape.head_dim)
        draft.matrix(prefix + "attn_output", q, shape.width)
        draft.norm(prefix + "ffn_norm")
        draft.matrix(prefix + "ffn_up", shape.width, 2 * shape.feed_forward)
        draft.matrix(prefix + "ffn_down", shape.feed_forward, shape.width)


def _gpt_oss(draft):
    draft.key("attention.sliding_window", WINDOW)
    draft.key("rope.freq_base", 150000.0)
    draft.matrix("output", draft.shape.width, len(draft.keys[TOKENS]))
    for prefix in draft.prefixes():
        draft.norm(prefix + "attn_norm")
        draft.attention(prefix, biases=("attn_q", "attn_k", "attn_v", "attn_output"))
        draft.vector(prefix + "attn_sinks", draft.shape.heads, 1, 1)
        draft.norm(prefix + "post_attention_norm")
        draft.experts(prefix, biases=True)


# general.architecture -> shape, and what adds its layers and its own keys to a draft. The heads of qwen2 and phi3
# are as wide together as the embedding.
ARCHITECTURES = {
    "llama": (Shape(), _llama),
    "gemma3": (Shape(layers=3), _gemma3),
    "qwen2": (Shape(width=96, heads=3, kv_heads=1), _qwen2),
    "qwen3": (Shape(heads=5, kv_heads=1), _qwen3),
    "qwen3moe": (Shape(heads=6, experts=5, experts_used=2), _qwen3),
    "smollm3": (Shape(layers=5, heads=3, kv_heads=3), _llama),
    "phi3": (Shape(width=96, heads=3, kv_heads=1), _phi3),
    "gpt-oss": (Shape(layers=4, heads=6, experts=5, experts_used=3), _gpt_oss),
}


@functools.cache
def _vocabulary(path):
    """Keys of a file's tokenizer: name -> value and its types."""
    reader = gguf.GGUFReader(path)
    return {name: (field.contents(), field.types) for name, field in reader.fields.items()
            if name.startswith("tokenizer.")}


def vocabulary(path=VOCABULARY):
    """The same, as a copy that may be changed: name -> value."""
    return {name: value for name, (value, _) in _vocabulary(path).items()}


def write(path, architecture, *, seed=1, kind=TYPES["q8_0"], changes=None, source=VOCABULARY):
    """Writes a model. `changes` maps names of the tokenizer's keys to other values."""
    shape, add_layers = ARCHITECTURES[architecture]
    draft = Draft(architecture, shape, seed, kind)
    draft.keys.update({**vocabulary(source), **(changes or {})})
    tokens = len(draft.keys[TOKENS])
    draft.usual_keys()
    draft.key("vocab_size", tokens)
    draft.matrix("token_embd", shape.width, tokens, scale=1.0)
    draft.norm("output_norm")
    add_layers(draft)

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    for name, value in draft.keys.items():
        _add_key(writer, name, value, _vocabulary(source).get(name, (None, None))[1])
    for name, (values, tensor_kind) in draft.tensors.items():
        writer.add_tensor(name, values, raw_dtype=tensor_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_key(writer, name, value, types):
    kind = gguf.GGUFValueType
    if types is None:
        writer.add_key_value(name, value, kind.FLOAT32 if isinstance(value, float) else kind.UINT32)
    elif types[0] == kind.ARRAY:
        writer.add_key_value(name, value, kind.ARRAY, types[-1])
    else:
        writer.add_key_value(name, value, types[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="where NAME.gguf goes, for each architecture")
    parser.add_argument("--architecture", action="append", choices=sorted(ARCHITECTURES), help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--type", choices=sorted(TYPES), default="q8_0", help="of the matrices")
    parser.add_argument("--vocabulary", type=pathlib.Path, default=VOCABULARY, help="a GGUF with a tokenizer")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    for architecture in options.architecture or ARCHITECTURES:
        path = options.directory / f"{architecture}.gguf"
        write(path, architecture, seed=options.seed, kind=TYPES[options.type], source=options.vocabulary)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
