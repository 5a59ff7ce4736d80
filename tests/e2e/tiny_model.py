"""Small models with random weights and a real vocabulary: a server of one starts in a blink.

The vocabulary and the chat template are SmolLM2's; the weights are Q8_0, whose products do not depend on
how many rows are computed together, so that a reply never depends on what was cached.
"""
import functools

import gguf
import numpy

import everwarm

WIDTH = 64
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 32
FEED_FORWARD = 96
LAYERS = {"llama": 2, "gemma3": 3}
WINDOW = 80
CONTEXT = 4096

TEMPLATE = "tokenizer.chat_template"
TOKENS = "tokenizer.ggml.tokens"


@functools.cache
def _vocabulary():
    """Keys and values of SmolLM2's tokenizer, with their types."""
    reader = gguf.GGUFReader(everwarm.SMOL)
    return {name: (field.contents(), field.types) for name, field in reader.fields.items()
            if name.startswith("tokenizer.")}


def vocabulary():
    """The same, as a copy that may be changed: name -> value."""
    return {name: value for name, (value, _) in _vocabulary().items()}


def write(path, seed=1, changes=None, architecture="llama"):
    """Writes a model. `changes` maps names of the tokenizer's keys to other values; a gemma3 has windows."""
    values = {**vocabulary(), **(changes or {})}
    writer = gguf.GGUFWriter(path, architecture)
    layers = LAYERS[architecture]
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(values[TOKENS]))
    if architecture == "gemma3":
        writer.add_sliding_window(WINDOW)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 3)
    for name, (_, types) in _vocabulary().items():
        _add(writer, name, values[name], types)

    random = numpy.random.default_rng(seed)
    _add_matrix(writer, random, "token_embd", WIDTH, len(values[TOKENS]), scale=1.0)
    _add_norm(writer, random, "output_norm", WIDTH)
    for layer in range(layers):
        _add_layer(writer, random, f"blk.{layer}.", architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_layer(writer, random, prefix, architecture):
    _add_norm(writer, random, prefix + "attn_norm", WIDTH)
    _add_norm(writer, random, prefix + "ffn_norm", WIDTH)
    if architecture == "gemma3":
        _add_norm(writer, random, prefix + "attn_q_norm", HEAD_DIM)
        _add_norm(writer, random, prefix + "attn_k_norm", HEAD_DIM)
        _add_norm(writer, random, prefix + "post_attention_norm", WIDTH)
        _add_norm(writer, random, prefix + "post_ffw_norm", WIDTH)
    for name, inputs, outputs in (("attn_q", WIDTH, HEADS * HEAD_DIM),
                                  ("attn_k", WIDTH, KV_HEADS * HEAD_DIM),
                                  ("attn_v", WIDTH, KV_HEADS * HEAD_DIM),
                                  ("attn_output", HEADS * HEAD_DIM, WIDTH),
                                  ("ffn_gate", WIDTH, FEED_FORWARD),
                                  ("ffn_up", WIDTH, FEED_FORWARD),
                                  ("ffn_down", FEED_FORWARD, WIDTH)):
        _add_matrix(writer, random, prefix + name, inputs, outputs, scale=1.5 / inputs ** 0.5)


def _add(writer, name, value, types):
    if types[0] == gguf.GGUFValueType.ARRAY:
        writer.add_key_value(name, value, gguf.GGUFValueType.ARRAY, types[-1])
    else:
        writer.add_key_value(name, value, types[0])


def _add_norm(writer, random, name, size):
    writer.add_tensor(name + ".weight", (1 + 0.2 * random.standard_normal(size)).astype(numpy.float32))


def _add_matrix(writer, random, name, inputs, outputs, scale):
    values = (scale * random.standard_normal((outputs, inputs))).astype(numpy.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name + ".weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
