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
        """`name` without the architecture's; a float becomes an f32, an int a u32, a list an array of i32."""
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


def _around(draft, prefix, second_norm="ffn_norm"):
    """A layer without what mixes positions."""
    draft.norm(prefix + "attn_norm")
    draft.norm(prefix + second_norm)
    draft.feed_forward(prefix)


def _kinds(draft):
    """The layers with whether each is recurrent, which their KV heads say: two of three are."""
    kinds = [layer % 3 != 1 for layer in range(draft.shape.layers)]
    draft.key("attention.head_count_kv", [0 if recurrent else draft.shape.kv_heads for recurrent in kinds])
    return zip(draft.prefixes(), kinds)


def _lfm2(draft):
    width, taps = draft.shape.width, 3
    draft.key("shortconv.l_cache", taps)
    draft.tensors["token_embd_norm.weight"] = draft.tensors.pop("output_norm.weight")
    for prefix, recurrent in _kinds(draft):
        _around(draft, prefix)
        if recurrent:
            draft.matrix(prefix + "shortconv.in_proj", width, 3 * width)
            draft.matrix(prefix + "shortconv.out_proj", width, width)
            draft.vector(prefix + "shortconv.conv", (width, taps), 0.2, 0.5)
        else:
            draft.attention(prefix)
            draft.head_norms(prefix)


def _ssm_keys(draft, *, taps, heads, head_dim, groups, state):
    """Returns the sizes of the convolution and of what leaves the heads."""
    inner = heads * head_dim
    draft.key("ssm.conv_kernel", taps)
    draft.key("ssm.inner_size", inner)
    draft.key("ssm.state_size", state)
    draft.key("ssm.time_step_rank", heads)
    draft.key("ssm.group_count", groups)
    return inner + 2 * groups * state, inner


def _granitehybrid(draft):
    width, taps, heads, groups = draft.shape.width, 4, 8, 2
    channels, inner = _ssm_keys(draft, taps=taps, heads=heads, head_dim=16, groups=groups, state=5)
    draft.key("rope.scaling.finetuned", False)
    draft.key("embedding_scale", 3.0)
    draft.key("residual_scale", 0.4)
    draft.key("attention.scale", 0.11)
    draft.key("logit_scale", 2.0)
    for prefix, recurrent in _kinds(draft):
        _around(draft, prefix)
        if not recurrent:
            draft.attention(prefix)
            continue
        draft.matrix(prefix + "ssm_in", width, inner + channels + heads)
        draft.matrix(prefix + "ssm_out", inner, width)
        draft.vector(prefix + "ssm_conv1d", (channels, taps), 0.2, 0.5)
        draft.bias(prefix + "ssm_conv1d", channels)
        draft.vector(prefix + "ssm_dt", heads, -2, 1, suffix=".bias")
        draft.vector(prefix + "ssm_a", (heads, 1), -1, 0.2, suffix="")
        draft.vector(prefix + "ssm_d", (heads, 1), 1, 0.3, suffix="")
        draft.vector(prefix + "ssm_norm", (groups, inner // groups), 1, 0.2)


def _qwen35(draft):
    shape, taps, heads, head_dim = draft.shape, 4, 6, 32
    channels, inner = _ssm_keys(draft, taps=taps, heads=heads, head_dim=head_dim, groups=3, state=head_dim)
    period = 3
    draft.key("full_attention_interval", period)
    draft.key("rope.dimension_sections", [6, 5, 5, 0])
    for layer, prefix in enumerate(draft.prefixes()):
        _around(draft, prefix, "post_attention_norm")
        if (layer + 1) % period == 0:
            draft.attention(prefix)
            draft.matrix(prefix + "attn_q", shape.width, 2 * shape.heads * shape.head_dim)
            draft.head_norms(prefix)
            continue
        draft.matrix(prefix + "attn_qkv", shape.width, channels)
        draft.matrix(prefix + "attn_gate", shape.width, inner)
        draft.matrix(prefix + "ssm_beta", shape.width, heads)
        draft.matrix(prefix + "ssm_alpha", shape.width, heads)
        draft.matrix(prefix + "ssm_out", inner, shape.width)
        draft.vector(prefix + "ssm_conv1d", (channels, taps), 0.2, 0.5)
        draft.vector(prefix + "ssm_dt", heads, -2, 1, suffix=".bias")
        draft.vector(prefix + "ssm_a", heads, -1, 0.2, suffix="")
        draft.norm(prefix + "ssm_norm", head_dim)


def _deepseek2(draft):
    shape, kv_rank, q_rank, rope, nope, value = draft.shape, 32, 32, 12, 32, 32
    sigmoid = 2
    for name, number in (("attention.key_length", kv_rank + rope), ("attention.value_length", kv_rank),
                         ("attention.key_length_mla", nope + rope), ("attention.value_length_mla", value),
                         ("attention.kv_lora_rank", kv_rank), ("attention.q_lora_rank", q_rank),
                         ("rope.dimension_count", rope), ("leading_dense_block_count", 1),
                         ("expert_shared_count", 2), ("expert_gating_func", sigmoid), ("expert_weights_norm", True),
                         ("expert_weights_scale", 1.7)):
        draft.key(name, number)
    for layer, prefix in enumerate(draft.prefixes()):
        draft.norm(prefix + "attn_norm")
        draft.norm(prefix + "ffn_norm")
        draft.matrix(prefix + "attn_q_a", shape.width, q_rank)
        draft.norm(prefix + "attn_q_a_norm", q_rank)
        draft.matrix(prefix + "attn_q_b", q_rank, shape.heads * (nope + rope))
        draft.matrix(prefix + "attn_kv_a_mqa", shape.width, kv_rank + rope)
        draft.norm(prefix + "attn_kv_a_norm", kv_rank)
        draft.matrix(prefix + "attn_k_b", nope, kv_rank, count=(shape.heads,))
        draft.matrix(prefix + "attn_v_b", kv_rank, value, count=(shape.heads,))
        draft.matrix(prefix + "attn_output", shape.heads * value, shape.width)
        if layer == 0:
            draft.feed_forward(prefix)
            continue
        draft.experts(prefix)
        draft.vector(prefix + "exp_probs_b", shape.experts, 0, 0.2, suffix=".bias")
        for name, inputs, outputs in (("ffn_gate_shexp", shape.width, 2 * shape.feed_forward),
                                      ("ffn_up_shexp", shape.width, 2 * shape.feed_forward),
                                      ("ffn_down_shexp", 2 * shape.feed_forward, shape.width)):
            draft.matrix(prefix + name, inputs, outputs)


# general.architecture -> shape, and what adds its layers and its own keys to a draft. The heads of qwen2, phi3
# and lfm2 are as wide together as the embedding.
ARCHITECTURES = {
    "llama": (Shape(), _llama),
    "gemma3": (Shape(layers=3), _gemma3),
    "qwen2": (Shape(width=96, heads=3, kv_heads=1), _qwen2),
    "qwen3": (Shape(heads=5, kv_heads=1), _qwen3),
    "qwen3moe": (Shape(heads=6, experts=5, experts_used=2), _qwen3),
    "smollm3": (Shape(layers=5, heads=3, kv_heads=3), _llama),
    "phi3": (Shape(width=96, heads=3, kv_heads=1), _phi3),
    "lfm2": (Shape(layers=3, width=96, heads=3, kv_heads=1), _lfm2),
    "granitehybrid": (Shape(layers=4, heads=2, kv_heads=1), _granitehybrid),
    "qwen35": (Shape(layers=4, heads=3, kv_heads=1), _qwen35),
    "deepseek2": (Shape(layers=3, heads=3, kv_heads=1, experts=5, experts_used=2), _deepseek2),
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
    if types is None and isinstance(value, list):
        writer.add_key_value(name, value, kind.ARRAY, kind.INT32)
    elif types is None:
        kinds = {float: kind.FLOAT32, bool: kind.BOOL, int: kind.UINT32}
        writer.add_key_value(name, value, kinds[type(value)])
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
