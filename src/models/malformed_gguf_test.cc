// Files that are damaged, incomplete or absurd give an error that says so.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_gguf.h"

namespace everwarm::models {
namespace {

using ::testing::HasSubstr;

class MalformedGgufTest : public testing::Test {
 protected:
  absl::Status LoadStatus(const TinyGguf& tiny) {
    EXPECT_TRUE(tiny.Write(path_));
    return Model::Load(path_, {}).status();
  }

  // The status of a llama model that `change` has been done to.
  absl::Status Changed(const std::function<void(TinyGguf&)>& change) {
    TinyGguf tiny = TinyGguf::Llama();
    change(tiny);
    return LoadStatus(tiny);
  }

  void ExpectError(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void SetBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("tiny.gguf");
};

TEST_F(MalformedGgufTest, AWholeFileLoads) {
  EXPECT_TRUE(LoadStatus(TinyGguf::Llama()).ok());
  EXPECT_TRUE(LoadStatus(TinyGguf::Gemma3()).ok());
  EXPECT_TRUE(LoadStatus(TinyGguf::Llama(1, GGML_TYPE_Q4_1)).ok());
}

TEST_F(MalformedGgufTest, AMissingFileIsNotFound) {
  ExpectError(Model::Load(path_, {}).status(), absl::StatusCode::kNotFound,
              {"no such file"});
}

TEST_F(MalformedGgufTest, ADirectoryIsRefused) {
  const absl::Status status = Model::Load(dir_.path(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(MalformedGgufTest, AnEmptyFileAndOtherFormatsAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("GG"), std::string("#!/bin/sh\n"),
        std::string("GGUF"), std::string(1000, '\0'),
        "GGUF" + std::string(1000, '\xff')}) {
    SetBytes(bytes);
    ExpectError(Model::Load(path_, {}).status(),
                absl::StatusCode::kInvalidArgument, {});
  }
}

TEST_F(MalformedGgufTest, AFileCutAnywhereIsRefused) {
  ASSERT_TRUE(TinyGguf::Llama().Write(path_));
  // Some of the data, then every byte of the tensor table and the keys.
  constexpr size_t kHeaderBytes = 3000;
  size_t size = std::filesystem::file_size(path_);
  while (size > 0) {
    size -= size > kHeaderBytes + 4099 ? 4099 : 1;
    std::filesystem::resize_file(path_, size);
    const absl::Status status = Model::Load(path_, {}).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << "cut at " << size << ": " << status;
  }
}

TEST_F(MalformedGgufTest, ACutInTheDataNamesTheTensorAndTheSizes) {
  ASSERT_TRUE(TinyGguf::Llama().Write(path_));
  const std::string whole = Bytes();
  SetBytes(whole.substr(0, whole.size() - 100));
  ExpectError(Model::Load(path_, {}).status(),
              absl::StatusCode::kInvalidArgument,
              {"cut short", "token_embd.weight",
               absl::StrCat(whole.size() - 100, " bytes")});
}

// Whatever a damaged header says, loading ends with a model or with an error.
TEST_F(MalformedGgufTest, DamagedHeadersNeverCrash) {
  constexpr size_t kDamagedBytes = 4000;
  ASSERT_TRUE(TinyGguf::Gemma3().Write(path_));
  const std::string whole = Bytes().substr(0, kDamagedBytes);
  std::mt19937 random(5);
  size_t loaded = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (uint32_t n = 0; n <= random() % 3; ++n) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    }
    // The data behind stays.
    std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out)
        << bytes;
    const auto model = Model::Load(path_, {});
    if (!model.ok()) {
      EXPECT_FALSE(model.status().message().empty());
      continue;
    }
    ++loaded;
    const SequenceBlocks blocks(**model, 64);
    const std::vector<TokenId> tokens = {1, 2, 3};
    EXPECT_TRUE(StepOnce(**model, blocks, tokens, 0, Wanted::kLast).ok());
  }
  // Damage in names and padding that do not matter leaves some loadable.
  EXPECT_GT(loaded, 0u);
}

TEST_F(MalformedGgufTest, AnUnknownArchitectureIsNamedWithThoseThatRun) {
  ExpectError(
      Changed([](TinyGguf& t) { t.strings["general.architecture"] = "mamba"; }),
      absl::StatusCode::kUnimplemented, {"'mamba'", "llama", "gemma3"});
  ExpectError(
      Changed([](TinyGguf& t) { t.strings.erase("general.architecture"); }),
      absl::StatusCode::kInvalidArgument, {"general.architecture", "missing"});
}

TEST_F(MalformedGgufTest, EveryMissingTensorIsNamed) {
  for (const TinyGguf& whole : {TinyGguf::Llama(), TinyGguf::Gemma3()}) {
    for (const auto& [name, tensor] : whole.tensors) {
      TinyGguf tiny = whole;
      tiny.tensors.erase(name);
      ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
                  {"'" + name + "'", "missing"});
    }
  }
}

TEST_F(MalformedGgufTest, EveryTensorOfAnotherShapeIsNamedWithBothShapes) {
  for (const TinyGguf& whole : {TinyGguf::Llama(), TinyGguf::Gemma3()}) {
    for (const auto& [name, tensor] : whole.tensors) {
      TinyGguf tiny = whole;
      tiny.tensors[name].ne[0] += 32;
      ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
                  {"'" + name + "'", absl::StrCat("[", tensor.ne[0])});
      tiny.tensors[name] = tensor;
      tiny.tensors[name].ne = {tensor.ne[0], 5, 3};
      EXPECT_FALSE(LoadStatus(tiny).ok()) << name;
    }
  }
}

TEST_F(MalformedGgufTest, TensorTypesThatDoNotRunAreNamed) {
  ExpectError(Changed([](TinyGguf& t) {
                t.tensors["output_norm.weight"].type = GGML_TYPE_F16;
              }),
              absl::StatusCode::kUnimplemented, {"output_norm.weight", "f16"});
}

TEST_F(MalformedGgufTest, ATensorThatNobodyReadsIsNamed) {
  ExpectError(
      Changed([](TinyGguf& t) { t.AddNorm("blk.0.attn_sub_norm", 64); }),
      absl::StatusCode::kUnimplemented, {"blk.0.attn_sub_norm.weight"});
}

TEST_F(MalformedGgufTest, EveryMissingKeyThatIsNeededIsNamed) {
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count"}) {
    ExpectError(Changed([&](TinyGguf& t) { t.uints.erase(key); }),
                absl::StatusCode::kInvalidArgument, {key, "missing"});
  }
  ExpectError(Changed([&](TinyGguf& t) {
                t.floats.erase("llama.attention.layer_norm_rms_epsilon");
              }),
              absl::StatusCode::kInvalidArgument,
              {"layer_norm_rms_epsilon", "missing"});
}

TEST_F(MalformedGgufTest, AbsurdNumbersAreNamed) {
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.head_count_kv", "llama.attention.key_length",
        "llama.attention.value_length", "llama.rope.dimension_count"}) {
    for (const uint32_t value : {0u, 0xffffffffu}) {
      ExpectError(Changed([&](TinyGguf& t) { t.uints[key] = value; }),
                  absl::StatusCode::kInvalidArgument,
                  {key, absl::StrCat(value)});
    }
  }
  ExpectError(Changed([](TinyGguf& t) {
                t.uints["llama.attention.head_count_kv"] = 3;
              }),
              absl::StatusCode::kInvalidArgument, {"4", "3"});
  ExpectError(Changed([](TinyGguf& t) {
                t.floats["llama.attention.layer_norm_rms_epsilon"] = NAN;
              }),
              absl::StatusCode::kInvalidArgument, {"layer_norm_rms_epsilon"});
  ExpectError(
      Changed([](TinyGguf& t) { t.floats["llama.rope.freq_base"] = -1.0f; }),
      absl::StatusCode::kInvalidArgument, {"-1"});
}

TEST_F(MalformedGgufTest, KeysOfAnotherTypeAreNamed) {
  ExpectError(Changed([](TinyGguf& t) {
                t.uints.erase("llama.block_count");
                t.strings["llama.block_count"] = "two";
              }),
              absl::StatusCode::kInvalidArgument,
              {"llama.block_count", "str", "integer"});
  ExpectError(Changed([](TinyGguf& t) {
                t.strings.erase("general.architecture");
                t.uints["general.architecture"] = 1;
              }),
              absl::StatusCode::kInvalidArgument,
              {"general.architecture", "u32", "string"});
  ExpectError(Changed([](TinyGguf& t) {
                t.uints.erase("llama.attention.head_count_kv");
                t.string_arrays["llama.attention.head_count_kv"] = {"2"};
              }),
              absl::StatusCode::kInvalidArgument,
              {"llama.attention.head_count_kv"});
}

TEST_F(MalformedGgufTest, VariantsThatDoNotRunAreSaidToBeUnimplemented) {
  ExpectError(Changed([](TinyGguf& t) { t.uints["llama.expert_count"] = 8; }),
              absl::StatusCode::kUnimplemented, {"expert_count"});
  ExpectError(Changed([](TinyGguf& t) {
                t.strings["llama.rope.scaling.type"] = "longrope";
              }),
              absl::StatusCode::kUnimplemented, {"longrope"});
  ExpectError(Changed([](TinyGguf& t) {
                t.uints.erase("llama.attention.head_count_kv");
                t.int_arrays["llama.attention.head_count_kv"] = {2, 1};
              }),
              absl::StatusCode::kUnimplemented, {"head_count_kv"});
}

TEST_F(MalformedGgufTest, OptionsOutOfRangeAreRefused) {
  ASSERT_TRUE(TinyGguf::Llama().Write(path_));
  for (const uint32_t tokens : {0, 8, 48, 512}) {
    EXPECT_EQ(Model::Load(path_, {.block_tokens = tokens}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (const uint32_t threads : {0, 100000}) {
    EXPECT_EQ(Model::Load(path_, {.num_threads = threads}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(MalformedGgufTest, StepsThatCannotBeComputedAreRefused) {
  ASSERT_TRUE(TinyGguf::Llama().Write(path_));
  const auto model = Model::Load(path_, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const SequenceBlocks blocks(**model, 64);
  const std::vector<StepSequence> sequences = {blocks.View()};
  const auto code = [&](const StepRow& row) {
    return (*model)->Step({{&row, 1}, sequences}).status().code();
  };
  EXPECT_EQ(code({.token = 95}), absl::StatusCode::kOk);
  EXPECT_EQ(code({.token = 96}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.token = -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.position = 64}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.sequence = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*model)->Step({}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// llama.cpp's loader aborts on some of these.
TEST_F(MalformedGgufTest, VocabulariesThatCannotBeReadAreRefused) {
  const auto status = [&](const std::function<void(TinyGguf&)>& change) {
    TinyGguf tiny = TinyGguf::Llama();
    tiny.strings["tokenizer.ggml.model"] = "llama";
    tiny.string_arrays["tokenizer.ggml.tokens"] = {"<unk>", "<s>", "</s>",
                                                   "<0x0A>", "a"};
    change(tiny);
    EXPECT_TRUE(tiny.Write(path_));
    return Vocabulary::Load(path_).status();
  };
  EXPECT_TRUE(status([](TinyGguf&) {}).ok());
  ExpectError(status([](TinyGguf& t) {
                t.strings["tokenizer.ggml.model"] = "no_vocab";
              }),
              absl::StatusCode::kInvalidArgument, {"no vocabulary"});
  ExpectError(
      status([](TinyGguf& t) { t.strings["tokenizer.ggml.model"] = "abacus"; }),
      absl::StatusCode::kInvalidArgument, {"abacus"});
  ExpectError(status([](TinyGguf& t) {
                t.string_arrays["tokenizer.ggml.tokens"][4] = "<s>";
              }),
              absl::StatusCode::kInvalidArgument, {"'<s>'", "twice"});
  ExpectError(status([](TinyGguf& t) { t.string_arrays.clear(); }),
              absl::StatusCode::kInvalidArgument, {"tokenizer.ggml.tokens"});
  ExpectError(status([](TinyGguf& t) {
                t.int_arrays["tokenizer.ggml.token_type"] = {1, 2};
              }),
              absl::StatusCode::kInvalidArgument, {});
}

}  // namespace
}  // namespace everwarm::models
