// A vocabulary of single characters in a small GGUF file, for tests of what is
// made of text: grammars, chat templates.
#ifndef EVERWARM_TESTING_BYTE_VOCABULARY_H_
#define EVERWARM_TESTING_BYTE_VOCABULARY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/vocabulary.h"
#include "testing/temp_dir.h"
#include "testing/tiny_gguf.h"

namespace everwarm {

// Printable ASCII, space and line feed, a token each; "<tool_call>" and
// "call>{" as tokens of several characters; "<|im_start|>" and "<|im_end|>" as
// control tokens, the latter the end of a generation.
//
// Threads: one.
class ByteVocabulary {
 public:
  // Empty: the file has no template.
  explicit ByteVocabulary(const std::string& chat_template = "") {
    TinyGguf tiny = TinyGguf::Llama(1);
    tiny.strings["tokenizer.ggml.model"] = "gpt2";
    tiny.strings["tokenizer.ggml.pre"] = "default";
    if (!chat_template.empty()) {
      tiny.strings["tokenizer.chat_template"] = chat_template;
    }
    std::vector<std::string>& tokens =
        tiny.string_arrays["tokenizer.ggml.tokens"];
    for (char character = '!'; character <= '~'; ++character) {
      tokens.emplace_back(1, character);
    }
    tokens.emplace_back("\u0120");  // a space
    tokens.emplace_back("\u010A");  // a line feed
    tokens.emplace_back("<tool_call>");
    tokens.emplace_back("call>{");
    tokens.emplace_back("<|im_start|>");
    tokens.emplace_back("<|im_end|>");
    constexpr int32_t kNormal = 1;
    constexpr int32_t kControl = 3;
    std::vector<int32_t>& types = tiny.int_arrays["tokenizer.ggml.token_type"];
    types.assign(tokens.size(), kNormal);
    types[tokens.size() - 1] = kControl;
    types[tokens.size() - 2] = kControl;
    tiny.string_arrays["tokenizer.ggml.merges"] = {"A A"};
    const auto end = static_cast<uint32_t>(tokens.size() - 1);
    tiny.uints["tokenizer.ggml.eos_token_id"] = end;
    tiny.uints["tokenizer.ggml.bos_token_id"] = end - 1;
    const std::string path = dir_.File("tiny.gguf");
    status_ = tiny.Write(path) ? absl::OkStatus()
                               : absl::InternalError("the file is not written");
    if (status_.ok()) {
      auto loaded = models::Vocabulary::Load(path);
      status_ = loaded.status();
      if (loaded.ok()) {
        vocabulary_ = *std::move(loaded);
      }
    }
  }

  const absl::Status& status() const { return status_; }
  // Requires: status() is OK.
  const models::Vocabulary& vocabulary() const { return *vocabulary_; }
  TokenId end() const { return static_cast<TokenId>(vocabulary_->size()) - 1; }

  std::vector<TokenId> Tokens(const std::string& text) const {
    return *vocabulary_->Tokenize(text, {.add_special = false});
  }

 private:
  const TempDir dir_;
  absl::Status status_;
  std::unique_ptr<models::Vocabulary> vocabulary_;
};

}  // namespace everwarm

#endif  // EVERWARM_TESTING_BYTE_VOCABULARY_H_
