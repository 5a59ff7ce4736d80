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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "models/vocabulary.h"
#include "testing/model_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_architectures.h"
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
  for (const TinyArchitecture& tiny : TinyArchitectures()) {
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q4_1}) {
      const absl::Status status = LoadStatus(tiny.make(type));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
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

TEST_F(MalformedGgufTest, ACutInTheDataNamesTheTensorAndTheSizes) {
  ASSERT_TRUE(TinyGguf::Llama().Write(path_));
  const std::string whole = Bytes();
  SetBytes(whole.substr(0, whole.size() - 100));
  ExpectError(Model::Load(path_, {}).status(),
              absl::StatusCode::kInvalidArgument,
              {"cut short", "token_embd.weight",
               absl::StrCat(whole.size() - 100, " bytes")});
}

TEST_F(MalformedGgufTest, AnUnknownArchitectureIsNamedWithThoseThatRun) {
  ExpectError(
      Changed([](TinyGguf& t) { t.strings["general.architecture"] = "mamba"; }),
      absl::StatusCode::kUnimplemented, {"'mamba'", "llama", "gemma3"});
  ExpectError(
      Changed([](TinyGguf& t) { t.strings.erase("general.architecture"); }),
      absl::StatusCode::kInvalidArgument, {"general.architecture", "missing"});
}

// What every architecture owes its files.
class MalformedArchitectureTest
    : public MalformedGgufTest,
      public testing::WithParamInterface<TinyArchitecture> {
 protected:
  const TinyGguf whole_ = GetParam().make(GGML_TYPE_F32);
  // general.architecture
  const std::string name_ = whole_.strings.at("general.architecture");

  // Without it the file is another model, and none the worse.
  bool IsOptional(const std::string& tensor) const {
    return tensor == "output.weight" ||
           (absl::EndsWith(tensor, ".bias") && GetParam().biases_optional);
  }
};
INSTANTIATE_TEST_SUITE_P(All, MalformedArchitectureTest,
                         testing::ValuesIn(TinyArchitectures()),
                         [](const auto& info) { return info.param.name; });

TEST_P(MalformedArchitectureTest, AFileCutAnywhereIsRefused) {
  ASSERT_TRUE(whole_.Write(path_));
  // Some of the data, then nearly every byte of the tensor table and the keys.
  constexpr size_t kHeaderBytes = 3000;
  size_t size = std::filesystem::file_size(path_);
  while (size > 0) {
    size -= std::min<size_t>(size, size > kHeaderBytes + 40099 ? 40099 : 3);
    std::filesystem::resize_file(path_, size);
    const absl::Status status = Model::Load(path_, {}).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << "cut at " << size << ": " << status;
  }
}

// Whatever a damaged header says, loading ends with a model or with an error.
TEST_P(MalformedArchitectureTest, DamagedHeadersNeverCrash) {
  ASSERT_TRUE(whole_.Write(path_));
  const std::string whole = Bytes().substr(0, 4000);
  std::mt19937 random(5);
  size_t loaded = 0;
  for (int i = 0; i < 700; ++i) {
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

TEST_P(MalformedArchitectureTest, EveryMissingTensorIsNamed) {
  for (const auto& [name, tensor] : whole_.tensors) {
    TinyGguf tiny = whole_;
    tiny.tensors.erase(name);
    const absl::Status status = LoadStatus(tiny);
    if (IsOptional(name)) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      ExpectError(status, absl::StatusCode::kInvalidArgument,
                  {"'" + name + "'", "missing"});
    }
  }
}

TEST_P(MalformedArchitectureTest, EveryTensorOfAnotherShapeIsNamedWithBoth) {
  for (const auto& [name, tensor] : whole_.tensors) {
    TinyGguf tiny = whole_;
    tiny.tensors[name].ne[0] += 32;
    ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"'" + name + "'", absl::StrCat("[", tensor.ne[0])});
    tiny.tensors[name] = tensor;
    tiny.tensors[name].ne = {tensor.ne[0], 7, 3};
    EXPECT_FALSE(LoadStatus(tiny).ok()) << name;
  }
}

TEST_P(MalformedArchitectureTest, ATensorThatNobodyReadsIsNamed) {
  TinyGguf tiny = whole_;
  tiny.AddNorm("blk.0.attn_sub_norm", 64);
  ExpectError(LoadStatus(tiny), absl::StatusCode::kUnimplemented,
              {"blk.0.attn_sub_norm.weight"});
}

TEST_P(MalformedArchitectureTest, EveryMissingOrAbsurdKeyIsNamed) {
  std::vector<std::string> keys = {"block_count", "context_length",
                                   "embedding_length", "attention.head_count"};
  keys.push_back(whole_.shape.experts > 0 ? "expert_used_count"
                                          : "feed_forward_length");
  for (const std::string& suffix : keys) {
    const std::string key = name_ + "." + suffix;
    TinyGguf tiny = whole_;
    tiny.uints.erase(key);
    ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
                {key, "missing"});
    for (const uint32_t value : {0u, 0xffffffffu}) {
      tiny.uints[key] = value;
      ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
                  {key, absl::StrCat(value)});
    }
  }
  TinyGguf tiny = whole_;
  tiny.floats.erase(name_ + ".attention.layer_norm_rms_epsilon");
  ExpectError(LoadStatus(tiny), absl::StatusCode::kInvalidArgument,
              {"layer_norm_rms_epsilon", "missing"});
}

TEST_P(MalformedArchitectureTest, AnUnknownRopeScalingIsNamed) {
  TinyGguf tiny = whole_;
  tiny.strings[name_ + ".rope.scaling.type"] = "spiral";
  ExpectError(LoadStatus(tiny), absl::StatusCode::kUnimplemented, {"spiral"});
}

// More than a row can take, and more than there are.
TEST_P(MalformedArchitectureTest, ExpertsBeyondThoseOfTheFileAreRefused) {
  TinyGguf tiny = whole_;
  tiny.uints[name_ + ".expert_count"] = 1000;
  tiny.uints[name_ + ".expert_used_count"] = 1001;
  EXPECT_FALSE(LoadStatus(tiny).ok());
  tiny.uints[name_ + ".expert_used_count"] = 2;
  EXPECT_FALSE(LoadStatus(tiny).ok());
}

TEST_F(MalformedGgufTest, TensorTypesThatDoNotRunAreNamed) {
  ExpectError(Changed([](TinyGguf& t) {
                t.tensors["output_norm.weight"].type = GGML_TYPE_F16;
              }),
              absl::StatusCode::kUnimplemented, {"output_norm.weight", "f16"});
}

TEST_F(MalformedGgufTest, AbsurdNumbersAreNamed) {
  for (const char* key :
       {"llama.feed_forward_length", "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.attention.value_length",
        "llama.rope.dimension_count"}) {
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
  // Rope factors that the file promises, and does not have.
  ExpectError(Changed([](TinyGguf& t) {
                t.strings["llama.rope.scaling.type"] = "longrope";
              }),
              absl::StatusCode::kInvalidArgument, {"rope_factors_long"});
  for (const bool longrope : {true, false}) {
    TinyGguf tiny = TinyQwen3(GGML_TYPE_F32);
    if (longrope) {
      tiny.strings["qwen3.rope.scaling.type"] = "longrope";
    } else {
      tiny.uints["qwen3.expert_count"] = 8;
    }
    ExpectError(LoadStatus(tiny), absl::StatusCode::kUnimplemented,
                {longrope ? "longrope" : "expert_count"});
  }
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
